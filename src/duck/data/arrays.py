"""Arrays in memory, or in an .npz file."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from duck.data.assemble import Samples, assemble, numbered_classes
from duck.errors import BadInput
from duck.registry import suggest
from duck.types import Augment, Data

KEYS = ("images", "labels", "ids", "test_images", "test_labels", "test_ids", "class_names")


def load(path: Path, *, image_size: int | None = None, split: bool = True) -> Data:
    """Read an .npz file with `images` and `labels`.

    Optional arrays: `test_images`, `test_labels`, `ids`, `test_ids` and `class_names`. All are as
    in `from_arrays`. Nothing in the file is unpickled.
    """
    content = _read(path)
    unknown = [key for key in content if key not in KEYS]
    if unknown:
        raise BadInput(
            f"{path} has an unknown array {unknown[0]!r}. {suggest(unknown[0], list(KEYS))}"
        )
    missing = [key for key in ("images", "labels") if key not in content]
    if missing:
        raise BadInput(
            f"{path} has no array {missing[0]!r}. Its arrays: {', '.join(content) or 'none'}."
        )
    return from_arrays(**content, name=path.stem, image_size=image_size, split=split)


def _read(path: Path) -> dict[str, Any]:
    if not zipfile.is_zipfile(path):
        raise BadInput(f"{path} is not an .npz file, or it is cut off. Write it with numpy.savez.")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except Exception as error:  # a damaged file raises nearly anything
        raise BadInput(
            f"Cannot read {path}: {error}. It must contain plain arrays from numpy.savez."
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
    name: str = "arrays",
    augment: Augment = "none",
    image_size: int | None = None,
    split: bool = True,
) -> Data:
    """Make a data set of arrays.

    Images have shape (N, H, W), (N, H, W, C) or (N, C, H, W). uint8 images are normalised by the
    mean and std of the training images; float images are used unchanged. Float arrays of other
    shapes are feature vectors. The shorter one of the second and the last axis is the channels,
    the second one if they are equally long.

    Args:
        ids: Default: the index.
        split: Without test arrays, split off a fifth of the samples by a hash of their ids. False:
            the model was trained elsewhere, and knows all classes of `class_names`, also those
            without training samples.
    """
    if (test_images is None) != (test_labels is None):
        raise BadInput(f"{name} needs both test_images and test_labels, or neither.")
    train = _samples(name, "", images, labels, ids)
    test = None
    if test_images is not None:
        test = _samples(name, "test_", test_images, test_labels, test_ids)
    if class_names is None:
        # A model that was trained elsewhere may know classes of which only test samples are given.
        known = train.labels if split or test is None else torch.cat([train.labels, test.labels])
        class_names = numbered_classes(name, known)
    classes = [str(word) for word in class_names]
    return assemble(name, train, test, classes, augment=augment, image_size=image_size, split=split)


def _samples(
    name: str, prefix: str, images: npt.ArrayLike, labels: Any, ids: npt.ArrayLike | None
) -> Samples:
    pixels = _images(f"{prefix}images of {name}", np.asarray(images))
    numbers = np.asarray(labels)
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise BadInput(
            f"The {prefix}labels of {name} must be a list of whole numbers, got {numbers.dtype} of "
            f"shape {numbers.shape}."
        )
    names = np.arange(len(numbers)) if ids is None else np.asarray(ids)
    if not len(pixels) == len(numbers) == names.size:
        raise BadInput(
            f"{name} has {len(pixels)} {prefix}images, {len(numbers)} labels and {names.size} ids: "
            "give one label and one id for each image."
        )
    if len(numbers) == 0:
        raise BadInput(f"{name} has no {prefix}images.")
    label_tensor = torch.from_numpy(numbers.astype(np.int64))
    return Samples(pixels, label_tensor, names.astype(np.str_).reshape(-1))


def _images(what: str, images: npt.NDArray[Any]) -> Tensor:
    is_float = np.issubdtype(images.dtype, np.floating)
    if images.dtype != np.uint8 and not is_float:
        raise BadInput(
            f"The {what} must be uint8 or float, got {images.dtype}. Convert them first."
        )
    if images.ndim not in (3, 4) and not (is_float and images.ndim > 1):
        raise BadInput(
            f"The {what} must have shape (N, H, W), (N, H, W, C) or (N, C, H, W), got "
            f"{images.shape}."
        )
    if is_float and not np.isfinite(images).all():
        raise BadInput(f"The {what} contain values that are not finite. Remove or replace them.")
    if images.ndim == 3:
        images = images[:, np.newaxis]
    elif images.ndim == 4:
        images = channels_first(images)
    # A copy: samples must not change when the caller changes the array.
    dtype = np.float32 if is_float else np.uint8
    return torch.from_numpy(images.astype(dtype, order="C", copy=True))


def channels_first(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return images as (..., C, H, W).

    The channels are the shorter one of the first and the last of the three axes.
    """
    return np.moveaxis(images, -1, -3) if images.shape[-1] < images.shape[-3] else images
