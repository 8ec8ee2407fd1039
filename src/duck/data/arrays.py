"""Arrays in memory, or in an .npz file."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from duck.data.assemble import Samples, assemble, numbered
from duck.errors import BadInput
from duck.registry import suggest
from duck.types import Augment, Data

Layout = Literal["auto", "channels-first", "channels-last"]
KEYS = ("images", "labels", "ids", "test_images", "test_labels", "test_ids", "class_names")


def load(path: Path, *, image_size: int | None = None, split: bool = True) -> Data:
    """An .npz file with `images` and `labels`, and as wanted `test_images`, `test_labels`, `ids`, `test_ids`, `class_names`.

    The arrays are as in `from_arrays`; nothing in the file is unpickled.
    """
    content = _read(path)
    unknown = [key for key in content if key not in KEYS]
    if unknown:
        raise BadInput(
            f"{path} has an array {unknown[0]!r} that means nothing here. {suggest(unknown[0], list(KEYS))}"
        )
    missing = [key for key in ("images", "labels") if key not in content]
    if missing:
        raise BadInput(f"{path} has no {missing[0]!r}; it holds {', '.join(content) or 'nothing'}.")
    return from_arrays(**content, name=path.stem, image_size=image_size, split=split)


def _read(path: Path) -> dict[str, Any]:
    if not zipfile.is_zipfile(path):
        raise BadInput(f"{path} is no .npz file, or was cut short. Write it with numpy.savez.")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except Exception as error:  # a damaged file raises nearly anything
        raise BadInput(
            f"Cannot read {path}: {error}. It must hold plain arrays, as numpy.savez writes them."
        ) from error


def from_arrays(
    images: npt.ArrayLike,
    labels: npt.ArrayLike,
    test_images: npt.ArrayLike | None = None,
    test_labels: npt.ArrayLike | None = None,
    *,
    ids: npt.ArrayLike | None = None,
    test_ids: npt.ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    layout: Layout = "auto",
    name: str = "arrays",
    augment: Augment = "none",
    image_size: int | None = None,
    split: bool = True,
) -> Data:
    """Images (N, H, W), (N, H, W, C) or (N, C, H, W), as uint8 (normalised by the mean and std of train) or float (taken as they are).

    Of four axes the channels are the shorter one of the second and the last, the second if they are alike; `layout` says
    otherwise. Float arrays of other shapes are feature vectors. Ids are the index unless given. Without test arrays
    a fifth is split off by id, unless `split` is off.
    """
    if (test_images is None) != (test_labels is None):
        raise BadInput(f"{name} needs both test_images and test_labels, or neither.")
    train = _samples(name, "", images, labels, ids, layout)
    test = (
        _samples(name, "test_", test_images, test_labels, test_ids, layout)
        if test_images is not None
        else None
    )
    classes = (
        [str(word) for word in class_names]
        if class_names is not None
        else numbered(name, train.labels)
    )
    return assemble(name, train, test, classes, augment=augment, image_size=image_size, split=split)


def _samples(
    name: str,
    prefix: str,
    images: npt.ArrayLike,
    labels: Any,
    ids: npt.ArrayLike | None,
    layout: Layout,
) -> Samples:
    pixels, numbers = (
        _images(f"{prefix}images of {name}", np.asarray(images), layout),
        np.asarray(labels),
    )
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise BadInput(
            f"The {prefix}labels of {name} must be one whole number each, got {numbers.dtype} of shape {numbers.shape}."
        )
    names = np.arange(len(numbers)) if ids is None else np.asarray(ids)
    if not len(pixels) == len(numbers) == names.size:
        raise BadInput(
            f"{name} has {len(pixels)} {prefix}images, {len(numbers)} labels and {names.size} ids: they must be as many."
        )
    if len(numbers) == 0:
        raise BadInput(f"{name} has no {prefix}images.")
    return Samples(
        pixels, torch.from_numpy(numbers.astype(np.int64)), names.astype(np.str_).reshape(-1)
    )


def _images(what: str, images: npt.NDArray[Any], layout: Layout) -> Tensor:
    is_float = np.issubdtype(images.dtype, np.floating)
    if images.dtype != np.uint8 and not is_float:
        raise BadInput(
            f"The {what} must be uint8 or float, got {images.dtype}. Convert them first, as with .astype('uint8')."
        )
    if images.ndim not in (3, 4) and not (is_float and images.ndim > 1):
        raise BadInput(
            f"The {what} must have shape (N, H, W), (N, H, W, C) or (N, C, H, W), got {images.shape}."
        )
    if is_float and not np.isfinite(images).all():
        raise BadInput(f"The {what} hold values that are not finite. Remove or replace them.")
    if images.ndim == 3:
        images = images[:, np.newaxis]
    elif images.ndim == 4:
        images = channels_first(images, layout)
    # Copied, so that a later change to the given array reaches no sample.
    return torch.from_numpy(
        images.astype(np.float32 if is_float else np.uint8, order="C", copy=True)
    )


def channels_first(images: npt.NDArray[Any], layout: Layout = "auto") -> npt.NDArray[Any]:
    """(..., C, H, W) of images in either layout; `auto` takes the shorter outer axis of the three for the channels."""
    is_last = images.shape[-1] < images.shape[-3] if layout == "auto" else layout == "channels-last"
    return np.moveaxis(images, -1, -3) if is_last else images
