"""Map-style torch data sets of (x, y, ...) tuples, or of dicts as in Hugging Face libraries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from duck.data.arrays import channels_first
from duck.data.assemble import check_pixels, finish, numbered_classes, statistics
from duck.data.decode import pixels_of
from duck.data.examples import Pixels, examples, stream
from duck.data.images import evenly_spaced_rows, fit_in_memory
from duck.data.progress import ProgressCallback
from duck.errors import BadInput
from duck.runtime import host_generators
from duck.types import Data, Examples

NAME = "dataset"
PROBES = 32
"""Number of samples that are read twice, to see whether the data set changes them at random."""
IMAGE_KEYS = ("pixel_values", "image", "img")
LABEL_KEYS = ("label", "labels", "target", "targets")


Outputs = Callable[[Tensor], int]
"""Returns the number of outputs of a model for such inputs, or raises BadInput if it fails."""


class MapStyle(Protocol):
    """A data set with a length and samples by index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def from_dataset(
    train_set: Dataset[Any] | MapStyle,
    test_set: Dataset[Any] | MapStyle | None = None,
    *,
    classes: Sequence[str] | None = None,
    pixels: Pixels | None = None,
    device: torch.device | str = "cpu",
    progress: ProgressCallback | None = None,
    dtype: torch.dtype | None = None,
    outputs: Outputs | None = None,
) -> Data:
    """Make a data set of torch data sets. The id of a sample is its index.

    A set that changes its samples at random, or needs more than half of the free memory, is read
    again in each epoch. The global generators of Python, NumPy and torch are seeded for each
    sample, so that training sees other changes in each epoch and evaluation always sees the same
    ones.

    Args:
        test_set: Without it there are no test data: nothing is split off.
        classes: Class names. Default: `classes` of the data set, else one class for each output of
            the model. Not all of them need samples. Without any of these the labels must be
            0 to K - 1 without gaps.
        pixels: Normalisation of uint8 tensors and PIL images. Default: the mean and std of the
            training images. Float tensors of any shape are not normalised.
        dtype: Type of float samples. Default: unchanged.
        outputs: Counts the outputs of the model for some inputs.
    """
    with host_generators() as reseed:
        reseed(0)
        train = _Reader.of(train_set, f"{NAME} (train)", dtype)
        if pixels is not None:
            check_pixels(NAME, pixels, len(train.first), train.first.dtype != torch.uint8)
        known = None if outputs is None else outputs(train.probe())
        seen, pixels = _read(train, pixels, progress)
        unseen = None
        if test_set is not None:
            test = _Reader.of(test_set, f"{NAME} (test)", dtype)
            unseen, _ = _read(test, pixels, progress)
    names = classes or _names(train_set) or numbered_classes(NAME, seen.labels, known)
    return finish(NAME, seen, unseen, names, augment="none", gaps=True).to(device)


def _names(dataset: object) -> list[str] | None:
    """Return the class names of a data set of torchvision, else None."""
    names = getattr(dataset, "classes", None)
    return [str(name) for name in names] if isinstance(names, (list, tuple)) and names else None


@dataclass(frozen=True)
class _Reader:
    """Reads samples that must all have the shape and type of the first."""

    dataset: MapStyle
    set_name: str
    first: Tensor
    dtype: torch.dtype | None = None
    """Type of float samples; None: unchanged."""

    @classmethod
    def of(
        cls, dataset: Dataset[Any] | MapStyle, set_name: str, dtype: torch.dtype | None = None
    ) -> "_Reader":
        """Check the data set and read its first sample."""
        is_map_style = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if isinstance(dataset, IterableDataset) or not is_map_style:
            raise BadInput(
                f"{set_name} must be a map-style data set; {type(dataset).__name__} is not."
            )
        samples = cast(MapStyle, dataset)
        if len(samples) == 0:
            raise BadInput(f"{set_name} has no samples.")
        sample_name = f"{set_name}, sample 0"
        first = _tensor(_pair(samples[0], sample_name)[0], None, sample_name)
        return cls(samples, set_name, _cast(first, dtype), dtype)

    def probe(self) -> Tensor:
        """Return a small batch, to see what a model returns for it."""
        # Neither 1 nor 3: a convolution would take that many matrices for the channels of an image.
        batch = self.first.expand(5, *self.first.shape)
        return batch / 255 if self.first.dtype == torch.uint8 else batch

    def __len__(self) -> int:
        return len(self.dataset)

    def __call__(self, index: int) -> tuple[Tensor, int]:
        sample_name = f"{self.set_name}, sample {index}"
        x, y = _pair(self.dataset[index], sample_name)
        x = _cast(_tensor(x, self.first, sample_name), self.dtype)
        if x.shape != self.first.shape or x.dtype != self.first.dtype:
            raise BadInput(
                f"{sample_name} is {x.dtype} of shape {tuple(x.shape)}, sample 0 is "
                f"{self.first.dtype} of {tuple(self.first.shape)}."
            )
        if x.is_floating_point() and not x.isfinite().all():
            raise BadInput(f"{sample_name} contains NaN or infinite values. Remove or replace it.")
        return x, _label(y, sample_name)

    def fetch(self, rows: Tensor) -> Tensor:
        return torch.stack([self(row)[0] for row in rows.tolist()])

    def is_random(self) -> bool:
        rows = evenly_spaced_rows(len(self), PROBES)
        return not torch.equal(self.fetch(rows), self.fetch(rows))


def _read(
    reader: _Reader, pixels: Pixels | None, progress: ProgressCallback | None
) -> tuple[Examples, Pixels | None]:
    """Return the examples and their normalisation, by default their own mean and std."""
    count = len(reader)
    first = reader.first
    is_random = reader.is_random()
    resident = fit_in_memory(count * first.nbytes) and not is_random
    images = torch.empty(count if resident else 0, *first.shape, dtype=first.dtype)
    labels = torch.empty(count, dtype=torch.int64)
    for index in range(count):
        image, labels[index] = reader(index)
        if resident:
            images[index] = image
        if progress:
            progress(index + 1, count)
    ids = np.arange(count).astype(np.str_)
    is_image = first.dtype == torch.uint8
    if is_image and pixels is None:
        chosen = evenly_spaced_rows(count).split(256)
        pixels = statistics([images] if resident else map(reader.fetch, chosen))
    own_pixels = pixels if is_image else None
    if resident:
        return examples(images, labels, ids, own_pixels), pixels
    shape = tuple(first.shape)
    return stream(labels, ids, own_pixels, reader.fetch, shape, is_random), pixels


def _pair(item: Any, sample_name: str) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        image_key = next((key for key in IMAGE_KEYS if key in item), None)
        label_key = next((key for key in LABEL_KEYS if key in item), None)
        if image_key is None or label_key is None:
            raise BadInput(
                f"{sample_name} must have one of {IMAGE_KEYS} and one of {LABEL_KEYS}; it has "
                f"{', '.join(map(str, item))}."
            )
        return item[image_key], item[label_key]
    if not isinstance(item, (tuple, list)) or len(item) < 2:
        raise BadInput(f"{sample_name} must be a pair (image, label) or a dict, got {_kind(item)}.")
    if _is_number(item[0]) and not _is_number(item[1]):
        order = ", ".join(map(_kind, item))
        raise BadInput(
            f"{sample_name} has the wrong order: expected (image, label), got ({order})."
        )
    return item[0], item[1]


def _is_number(value: Any) -> bool:
    """Return whether a value is a label or an index, not an image."""
    return isinstance(value, int | float) or getattr(value, "ndim", None) == 0


def _label(y: Any, sample_name: str) -> int:
    value = y.item() if getattr(y, "ndim", None) == 0 else y
    if not isinstance(value, int):
        raise BadInput(f"{sample_name} must have one whole number as its label, got {_kind(y)}.")
    return value


def _tensor(x: Any, first: Tensor | None, sample_name: str) -> Tensor:
    """Return a sample as a tensor.

    uint8 with two or three axes becomes an image (C, H, W), other uint8 a float vector.
    """
    try:
        tensor = _converted(x, first)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(
            f"{sample_name} must be a tensor, an array or an 8-bit image, got {_kind(x)}: {error}."
        ) from error
    if tensor.dtype != torch.uint8 or tensor.ndim == 3:
        return tensor
    return tensor.unsqueeze(0) if tensor.ndim == 2 else tensor.float()


def _cast(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    return x.to(dtype) if dtype is not None and x.is_floating_point() else x


def _converted(x: Any, first: Tensor | None) -> Tensor:
    from PIL.Image import Image

    if isinstance(x, Tensor):
        return x.detach().cpu()
    if isinstance(x, Image):
        # The first image decides: later grey images become coloured, later coloured ones are an
        # error after a grey one.
        grey = x.mode in ("L", "1") and (first is None or first.shape[0] == 1)
        return torch.from_numpy(pixels_of(x, 1 if grey else 3))
    if isinstance(x, np.ndarray) and x.dtype == np.uint8 and x.ndim == 3:
        x = channels_first(x)
    return torch.tensor(x)


def _kind(value: Any) -> str:
    name = type(value).__name__
    if hasattr(value, "shape"):
        return f"{name} of shape {tuple(value.shape)}"
    return f"{name} of length {len(value)}" if hasattr(value, "__len__") else f"{name} {value!r}"
