"""Any map-style torch Dataset of (x, y) pairs, with anything after them, or of dicts as the Hugging Face libraries give them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from duck.data.arrays import channels_first
from duck.data.assemble import finish, numbered, statistics
from duck.data.decode import pixels_of
from duck.data.examples import Pixels, Streamed, examples
from duck.data.images import room, spread
from duck.data.progress import ProgressCallback
from duck.errors import BadInput
from duck.runtime import host_generators
from duck.types import Data, Examples

PROBES = 32
"""Samples that are read twice, to see whether the data set changes them at random."""
IMAGE_KEYS, LABEL_KEYS = ("pixel_values", "image", "img"), ("label", "labels", "target", "targets")


Outputs = Callable[[Tensor], int]
"""How many outputs a model has for each of these inputs; a BadInput where it cannot take them."""


class MapStyle(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def from_dataset(
    train_set: Dataset[Any] | MapStyle,
    test_set: Dataset[Any] | MapStyle | None = None,
    *,
    name: str = "dataset",
    classes: Sequence[str] | None = None,
    pixels: Pixels | None = None,
    device: torch.device | str = "cpu",
    max_bytes: int | None = None,
    progress: ProgressCallback | None = None,
    dtype: torch.dtype | None = None,
    outputs: Outputs | None = None,
) -> Data:
    """Samples as the data set gives them; the id of each is its index. Without a test set nothing is split off.

    Float tensors of any shape are taken as they are, in `dtype` where it is given. uint8 tensors and PIL images are
    normalised by `pixels`, or by the mean and std of the training images. Classes are those of `classes`, else of the
    data set's own `classes`, else as many as a model has `outputs`; not all of them need samples. Without any of
    these the labels must be 0 to K - 1, every one present. A set that changes its samples at random, or takes more than
    `max_bytes` (half of the free memory), is read again in each epoch. What it draws from the global generators of
    Python, NumPy and torch is seeded then: other changes in each epoch of training, always the same ones to look at.
    """
    with host_generators() as reseed:
        reseed(0)
        train = _Reader.of(train_set, f"{name} (train)", dtype)
        _check_pixels(pixels, train.like, name)
        train, known = train.suited(outputs) if outputs is not None else (train, None)
        limit = room() if max_bytes is None else max_bytes
        seen, pixels = _read(train, pixels, limit, progress)
        test = (
            _Reader.of(test_set, f"{name} (test)", dtype, train.one_channel)
            if test_set is not None
            else None
        )
        unseen = _read(test, pixels, limit, progress)[0] if test is not None else None
    names = classes or _names(train_set) or numbered(name, seen.labels, known)
    return finish(name, seen, unseen, names, augment="none", gaps=True).to(device)


def _check_pixels(pixels: Pixels | None, like: Tensor, name: str) -> None:
    if pixels is None:
        return
    if like.dtype != torch.uint8:
        raise BadInput(
            f"The samples of {name} are {like.dtype}, floats already: they are taken as they are, without mean and std."
        )
    channels = len(like)
    if len(pixels.mean) != channels or len(pixels.std) != channels or min(pixels.std) <= 0:
        some = f"{channels} channel{'s' * (channels > 1)}"
        raise BadInput(
            f"{name} has {some}: give as many numbers for the mean and for the std, the latter above 0."
        )


def _names(dataset: object) -> list[str] | None:
    """The class names that torchvision's data sets carry."""
    names = getattr(dataset, "classes", None)
    return [str(name) for name in names] if isinstance(names, (list, tuple)) and names else None


@dataclass(frozen=True)
class _Reader:
    """Reads samples that must all be like the first."""

    dataset: MapStyle
    where: str
    like: Tensor
    dtype: torch.dtype | None = None
    """Of float samples; None: as they are."""
    one_channel: bool = False
    """Matrices of floats are images of one channel."""

    @classmethod
    def of(
        cls,
        dataset: Dataset[Any] | MapStyle,
        where: str,
        dtype: torch.dtype | None = None,
        one_channel: bool = False,
    ) -> "_Reader":
        if isinstance(dataset, IterableDataset) or not (
            hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        ):
            raise BadInput(
                f"{where} must be a map-style data set, with a length and samples by index; {type(dataset).__name__} is not."
            )
        samples = cast(MapStyle, dataset)
        if len(samples) == 0:
            raise BadInput(f"{where} has no samples.")
        here = f"{where}, sample 0"
        first = _tensor(_pair(samples[0], here)[0], None, here)
        return cls(samples, where, _as_input(first, dtype, one_channel), dtype, one_channel)

    def suited(self, outputs: Outputs) -> tuple["_Reader", int]:
        """The reader of what the model takes, and how many outputs it has: matrices become images where it takes no others."""
        try:
            return self, outputs(self._probe())
        except BadInput as error:
            if self.like.ndim != 2 or not self.like.is_floating_point():
                raise
            other = replace(self, like=self.like.unsqueeze(0), one_channel=True)
            try:
                return other, outputs(other._probe())
            except BadInput:
                raise error from None

    def _probe(self) -> Tensor:
        # Not as many as an image has channels: a convolution would take a batch of matrices for one image.
        few = self.like.expand(5, *self.like.shape)
        return few / 255 if self.like.dtype == torch.uint8 else few

    def __len__(self) -> int:
        return len(self.dataset)

    def __call__(self, index: int) -> tuple[Tensor, int]:
        here = f"{self.where}, sample {index}"
        x, y = _pair(self.dataset[index], here)
        x = _as_input(_tensor(x, self.like, here), self.dtype, self.one_channel)
        if x.shape != self.like.shape or x.dtype != self.like.dtype:
            raise BadInput(
                f"{here} is {x.dtype} of shape {tuple(x.shape)}, sample 0 is {self.like.dtype} of {tuple(self.like.shape)}."
            )
        if x.is_floating_point() and not x.isfinite().all():
            raise BadInput(f"{here} holds NaN or infinite values. Remove or replace it.")
        return x, _label(y, here)

    def fetch(self, rows: Tensor) -> Tensor:
        return torch.stack([self(row)[0] for row in rows.tolist()])

    def is_random(self) -> bool:
        rows = spread(len(self), PROBES)
        return not torch.equal(self.fetch(rows), self.fetch(rows))


def _read(
    reader: _Reader, pixels: Pixels | None, max_bytes: int, progress: ProgressCallback | None
) -> tuple[Examples, Pixels | None]:
    """The examples with the given or their own mean and std, and these."""
    count, like = len(reader), reader.like
    is_random = reader.is_random()
    resident = count * like.nbytes <= max_bytes and not is_random
    images = torch.empty(count if resident else 0, *like.shape, dtype=like.dtype)
    labels = torch.empty(count, dtype=torch.int64)
    for index in range(count):
        image, labels[index] = reader(index)
        if resident:
            images[index] = image
        if progress:
            progress(index + 1, count)
    is_image, ids = like.dtype == torch.uint8, np.arange(count).astype(np.str_)
    if is_image and pixels is None:
        pixels = statistics([images] if resident else map(reader.fetch, spread(count).split(256)))
    if resident:
        return examples(images, labels, ids, pixels if is_image else None), pixels
    shape = tuple(like.shape)
    place = torch.arange(count), torch.device("cpu")
    return Streamed(
        labels, ids, pixels if is_image else None, *place, reader.fetch, shape, is_random
    ), pixels


def _pair(item: Any, here: str) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        images, labels = ([key for key in keys if key in item] for keys in (IMAGE_KEYS, LABEL_KEYS))
        if not images or not labels:
            raise BadInput(
                f"{here} must have one of {IMAGE_KEYS} and one of {LABEL_KEYS}; it has {', '.join(map(str, item))}."
            )
        return item[images[0]], item[labels[0]]
    if not isinstance(item, (tuple, list)) or len(item) < 2:
        raise BadInput(f"{here} must be a pair (image, label) or a dict, got {_kind(item)}.")
    if _is_number(item[0]) and not _is_number(item[1]):
        order = ", ".join(map(_kind, item))
        raise BadInput(
            f"{here} has the wrong order: expected (image, label), got ({order}). Give the image first, then its label."
        )
    return item[0], item[1]


def _is_number(value: Any) -> bool:
    """A label or an index, not an image."""
    return isinstance(value, int | float | np.generic) or (
        isinstance(value, Tensor | np.ndarray) and value.ndim == 0
    )


def _label(y: Any, here: str) -> int:
    value = y.item() if isinstance(y, (Tensor, np.ndarray, np.generic)) and y.ndim == 0 else y
    if not isinstance(value, int):
        raise BadInput(f"{here} must have one whole number as its label, got {_kind(y)}.")
    return value


def _tensor(x: Any, like: Tensor | None, here: str) -> Tensor:
    """As it is, except that uint8 with two or three axes is an image (C, H, W), and other uint8 a float vector."""
    try:
        tensor = _converted(x, like)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(
            f"{here} must be a tensor, an array or an 8-bit image, got {_kind(x)}: {error}."
        ) from error
    if tensor.dtype != torch.uint8:
        return tensor
    return (
        tensor.unsqueeze(0) if tensor.ndim == 2 else tensor if tensor.ndim == 3 else tensor.float()
    )


def _as_input(x: Tensor, dtype: torch.dtype | None, one_channel: bool) -> Tensor:
    if not x.is_floating_point():
        return x
    x = x.to(dtype) if dtype is not None else x
    return x.unsqueeze(0) if one_channel and x.ndim == 2 else x


def _converted(x: Any, like: Tensor | None) -> Tensor:
    from PIL.Image import Image

    if isinstance(x, Tensor):
        return x.detach().cpu()
    if isinstance(x, Image):
        # The first image decides: a grey one among colours is coloured, colours among grey ones are an error.
        grey = x.mode in ("L", "1") and (like is None or like.shape[0] == 1)
        return torch.from_numpy(pixels_of(x, 1 if grey else 3))
    if isinstance(x, np.ndarray) and x.dtype == np.uint8 and x.ndim == 3:
        x = channels_first(x)
    return torch.tensor(x)


def _kind(value: Any) -> str:
    if hasattr(value, "shape"):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    return (
        f"{type(value).__name__} of length {len(value)}"
        if hasattr(value, "__len__")
        else f"{type(value).__name__} {value!r}"
    )
