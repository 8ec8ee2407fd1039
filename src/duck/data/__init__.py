"""Data sets: by name, from a folder of class folders, an .npz file, arrays or a torch Dataset."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duck.data.progress import ProgressCallback
from duck.errors import BadInput
from duck.registry import Registry

# The sources are imported where they are used: listing their names must not load torch.
if TYPE_CHECKING:
    import torch

    from duck.types import Data

MAX_SIZE = 16384
"""Largest side of an image in pixels; larger images would not fit in memory."""


DATASETS: Registry[Callable[..., "Data"]] = Registry("data set")
"""Each entry is called with the root folder and `download`, `image_size` and `progress` by name."""
SMALL_IMAGES = ("digits", "noisy-digits")
"""Embedded data sets of 8x8 pixels: a small net suffices, and no augmentation is safe."""


@DATASETS.register("digits")
def _digits(root: Path, **options: Any) -> "Data":
    """Handwritten digits of 8x8 pixels; they come with scikit-learn."""
    from duck.data import digits

    return digits.load(image_size=options["image_size"])


@DATASETS.register("noisy-digits")
def _noisy_digits(root: Path, **options: Any) -> "Data":
    """Digits with noise in pixels and labels, which models memorise."""
    from duck.data import digits

    return digits.load_noisy(image_size=options["image_size"])


@DATASETS.register("cifar10")
def _cifar10(root: Path, **options: Any) -> "Data":
    """60,000 photographs of 32x32 pixels in 10 classes."""
    from duck.data import cifar

    return cifar.load(cifar.CIFAR10, root, **options)


@DATASETS.register("cifar100")
def _cifar100(root: Path, **options: Any) -> "Data":
    """60,000 photographs of 32x32 pixels in 100 classes."""
    from duck.data import cifar

    return cifar.load(cifar.CIFAR100, root, **options)


@DATASETS.register("tiny-imagenet")
def _tiny_imagenet(root: Path, **options: Any) -> "Data":
    """110,000 photographs of 64x64 pixels in 200 classes."""
    from duck.data import tiny_imagenet

    return tiny_imagenet.load(root, **options)


def load(
    name_or_path: str | Path,
    root: str | Path = "data",
    *,
    download: bool = False,
    image_size: int | None = None,
    device: "torch.device | str" = "cpu",
    progress: ProgressCallback | None = None,
    split: bool = True,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
) -> "Data":
    """Load a data set by name, from a folder of class folders, or from an .npz file.

    Args:
        name_or_path: A name from `duck list datasets`, or a path.
        root: Folder of the named data sets.
        download: Download a named data set that is not there.
        image_size: Resize the images (short side, then centre crop).
        device: Where the batches are.
        progress: Progress callback.
        split: Split a folder or file without test data by a hash of the ids. False: all samples
            are training samples, for models that were trained on all of them.
        mean: Mean per channel, of pixels in 0..1. Default: the mean of the data.
        std: Standard deviation per channel, of pixels in 0..1. Default: that of the data.
    """
    if image_size is not None and not 1 <= image_size <= MAX_SIZE:
        raise BadInput(f"The image size must be from 1 to {MAX_SIZE}, got {image_size}.")
    if isinstance(name_or_path, str) and (name_or_path in DATASETS or not _is_path(name_or_path)):
        data = DATASETS[name_or_path](
            Path(root).expanduser(), download=download, image_size=image_size, progress=progress
        )
    else:
        data = _from_path(Path(name_or_path).expanduser(), image_size, progress, split)
    if mean or std:
        data = _normalised(data, mean, std)
    return data.to(device)


def _normalised(data: "Data", mean: Sequence[float], std: Sequence[float]) -> "Data":
    from duck.data.assemble import check_pixels
    from duck.data.examples import Pixels

    pixels = Pixels(tuple(mean), tuple(std))
    check_pixels(data.name, pixels, data.train.shape[0], is_float=data.train.pixels is None)
    test = None if data.test is None else replace(data.test, pixels=pixels)
    return replace(data, train=replace(data.train, pixels=pixels), test=test)


def _is_path(word: str) -> bool:
    return os.sep in word or word.startswith("~") or word.endswith(".npz") or Path(word).exists()


def _from_path(
    path: Path, image_size: int | None, progress: ProgressCallback | None, split: bool
) -> "Data":
    if path.is_dir():
        from duck.data import folder

        return folder.load(path, image_size=image_size, progress=progress, split=split)
    if path.suffix == ".npz" and path.is_file():
        from duck.data import arrays

        return arrays.load(path, image_size=image_size, split=split)
    problem = "is neither a folder nor an .npz file" if path.exists() else "does not exist"
    raise BadInput(f"{path} {problem}. Give one of these, or a name: {', '.join(DATASETS)}.")
