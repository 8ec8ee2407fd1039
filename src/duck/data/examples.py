"""Labelled images: as uint8 on the device, or streamed to it; augmented on the device."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from duck.errors import BadInput
from duck.runtime import host_generators

EPOCH_BYTES = 2**29
"""Images are augmented in parts of this size; smaller epochs are augmented at once."""

T = TypeVar("T")
Fetch = Callable[[Tensor], Tensor]
Augment = Literal["none", "crop", "crop-flip"]
Ids = npt.NDArray[np.str_]


class Batch(NamedTuple):
    """Normalised images on the device, their labels, and their rows in the source Examples."""

    images: Tensor
    labels: Tensor
    rows: Tensor


@dataclass(frozen=True)
class Pixels:
    """The normalisation of uint8 images: (x / 255 - mean) / std per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __str__(self) -> str:
        mean, std = (
            ", ".join(f"{value:.3f}" for value in values) for values in (self.mean, self.std)
        )
        return f"mean ({mean}) and std ({std})"

    def on(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return a function that normalises images on the device."""
        shifts = [-m / s for m, s in zip(self.mean, self.std, strict=True)]
        scale = torch.tensor([1 / (255 * s) for s in self.std], device=device).view(-1, 1, 1)
        shift = torch.tensor(shifts, device=device).view(-1, 1, 1)
        return lambda images: images.float().mul_(scale).add_(shift)


class RandomCrops:
    """A random crop, reflected at the border, and mirroring for each image of an epoch.

    All are drawn at once on the host.
    """

    def __init__(
        self, augment: Augment, count: int, shape: tuple[int, ...], generator: torch.Generator
    ) -> None:
        height, width = shape[-2:]
        reach = max(1, min(height, width) // 8)
        self.shifts = torch.randint(-reach, reach + 1, (2, count), generator=generator)
        flip_rate = 0.5 if augment == "crop-flip" else 0.0
        self.mirrored = torch.rand(count, generator=generator) < flip_rate
        self.height = height
        self.width = width

    def __call__(self, images: Tensor, rows: Tensor, part: slice) -> Tensor:
        """Return crops of images[rows], gathered from `images` in one indexing operation."""
        down, right = self.shifts[:, part].to(images.device).unsqueeze(-1)
        mirrored = self.mirrored[part].to(images.device).unsqueeze(-1)
        across = torch.arange(self.width, device=images.device).expand(len(rows), -1)
        across = torch.where(mirrored, across.flip(-1), across)
        y = _reflect(torch.arange(self.height, device=images.device) + down, self.height)
        x = _reflect(across + right, self.width)
        # The slice between index tensors moves to the end: (n, H, W, C), channels-last memory.
        return images[rows.view(-1, 1, 1), :, y.unsqueeze(2), x.unsqueeze(1)].permute(0, 3, 1, 2)


def _reflect(index: Tensor, size: int) -> Tensor:
    return (size - 1) - ((size - 1) - index.abs()).abs()


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled images, each with a stable id.

    Labels and ids are always on the host. The images may be on any device or on disk.
    """

    labels: Tensor
    ids: Ids
    pixels: Pixels | None
    """None: the images are floats, which are not normalised."""
    rows: Tensor
    """Rows of the underlying images, in the order of `labels` and `ids`."""
    device: torch.device
    """The device of the batches."""
    shape: tuple[int, ...]
    """The shape of one image, channels first."""
    random: bool = field(default=False, kw_only=True)
    """Whether samples change each time they are read."""
    drawn: Tensor | None = field(default=None, kw_only=True)
    """By underlying row, whether it was drawn for training. All views share it."""

    def __len__(self) -> int:
        return len(self.labels)

    def _epoch(
        self, rows: Tensor, crops: RandomCrops | None, size: int, generator: torch.Generator | None
    ) -> Iterator[Tensor]:
        """Yield images of these underlying rows on the device, in parts of whole batches."""
        raise NotImplementedError

    def _stored_images(self, rows: Tensor) -> Tensor:
        """Return underlying images as they are stored; the same ones each time."""
        raise NotImplementedError

    def to(self, device: torch.device | str) -> "Examples":
        """Return the same examples with batches on that device."""
        raise NotImplementedError

    def take(self, rows: Tensor) -> Self:
        """Return a view of these rows, in this order. No image is copied."""
        return replace(
            self, labels=self.labels[rows], ids=self.ids[rows.numpy()], rows=self.rows[rows]
        )

    def counting(self) -> tuple[Self, Tensor]:
        """Return the same examples with a mask `drawn`, which is false for each sample at first."""
        drawn = torch.zeros(int(self.rows.max()) + 1, dtype=torch.bool)
        return replace(self, drawn=drawn), drawn

    @cached_property
    def digests(self) -> list[bytes]:
        """A hash of the pixels of each sample, in order. Exact copies have equal hashes."""
        digests: list[bytes] = []
        for images in self._stored_bytes():
            digests += [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in images]
        return digests

    def fingerprint(self) -> str:
        """Return a hash of all ids, labels and pixels."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update("\n".join(self.ids.tolist()).encode())
        digest.update(np.ascontiguousarray(self.labels.numpy()).tobytes())
        for images in self._stored_bytes():
            digest.update(images.tobytes())
        return digest.hexdigest()

    def _stored_bytes(self) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the stored images in the order of the ids, each as a row of bytes."""
        for rows in self.rows.split(4096):
            images = self._stored_images(rows).cpu().reshape(len(rows), -1).contiguous()
            # Bytes, because NumPy has no bfloat16.
            yield images.view(torch.uint8).numpy()

    def batches(
        self, size: int, generator: torch.Generator | None = None, augment: Augment = "none"
    ) -> Iterator[Batch]:
        """Iterate over all samples once.

        With a generator the order is random and every batch is full: the last one is filled up
        from the beginning of the order, because a short batch would disturb BatchNorm.
        Without a generator the samples come in order and the last batch may be short.
        """
        if size < 1:
            raise BadInput(f"The batch size must be at least 1, got {size}.")
        if augment != "none" and generator is None:
            raise BadInput("Augmentation is random and needs a generator.")
        if augment != "none" and len(self.shape) != 3:
            raise BadInput(
                f"Crops need images (C, H, W), these have shape {self.shape}: use augment='none'."
            )
        order, size = _order(len(self), size, generator)
        crops = None
        if augment != "none" and generator is not None:
            crops = RandomCrops(augment, len(order), self.shape, generator)
        labels = self.labels[order].to(self.device)
        positions = order.to(self.device)
        normalise = self.pixels.on(self.device) if self.pixels else lambda images: images
        start = 0
        for part in self._epoch(self.rows[order], crops, size, generator):
            for images in part.split(size):
                rows = slice(start, start + len(images))
                start += len(images)
                if self.drawn is not None and generator is not None:
                    self.drawn[self.rows[order[rows]]] = True
                yield Batch(normalise(images), labels[rows], positions[rows])


def _order(count: int, size: int, generator: torch.Generator | None) -> tuple[Tensor, int]:
    if generator is None:
        return torch.arange(count), size
    order = torch.randperm(count, generator=generator)
    size = max(1, min(size, count))
    missing = -count % size
    return torch.cat([order, order[:missing]]), size


@dataclass(frozen=True, eq=False)
class Resident(Examples):
    """Examples whose images are all in the memory of the device."""

    images: Tensor

    def to(self, device: torch.device | str) -> Examples:
        """Move the images to the device or, if they do not fit there, stream them to it."""
        device = torch.device(device)
        if device == self.device:
            return self
        if fits(self.images.nbytes, device):
            return replace(self, images=self.images.to(device), device=device)
        return replace(self.streamed(self.images.__getitem__, self.shape), device=device)

    def streamed(self, fetch: Fetch, shape: tuple[int, ...]) -> "Streamed":
        """Return the same samples with images from another function."""
        facts = self.labels, self.ids, self.pixels, self.rows, self.device
        return Streamed(*facts, shape, fetch, drawn=self.drawn)

    def _epoch(
        self, rows: Tensor, crops: RandomCrops | None, size: int, generator: torch.Generator | None
    ) -> Iterator[Tensor]:
        rows = rows.to(self.device)
        step = max(1, EPOCH_BYTES // (self.images[:1].nbytes * size)) * size
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            yield crops(self.images, rows[part], part) if crops else self.images[rows[part]]

    def _stored_images(self, rows: Tensor) -> Tensor:
        return self.images[rows.to(self.device)]


@dataclass(frozen=True, eq=False)
class Streamed(Examples):
    """Examples whose images are fetched from the host, the next batch while the device works.

    The batches are the same as those of Resident. If they are random, fetching draws from the
    global generators. The draws depend on the generator of a pass; all passes without one draw the
    same.
    """

    fetch: Fetch
    """Maps underlying rows to images on the host, by a memory map or by decoding."""

    def to(self, device: torch.device | str) -> "Streamed":
        return replace(self, device=torch.device(device))

    def _epoch(
        self, rows: Tensor, crops: RandomCrops | None, size: int, generator: torch.Generator | None
    ) -> Iterator[Tensor]:
        fetch = self._seeded_fetch(generator)
        starts = range(0, len(rows), size)

        def load(start: int) -> Tensor:
            part = slice(start, start + size)
            images = fetch(rows[part])
            if self.device.type == "cuda":
                images = images.pin_memory()
            images = images.to(self.device, non_blocking=True)
            if crops is None:
                return images
            return crops(images, torch.arange(len(images), device=self.device), part)

        # A thread would draw from the global generators while training draws dropout from them.
        return map(load, starts) if self.random else prefetch(load, starts)

    def _stored_images(self, rows: Tensor) -> Tensor:
        return self._seeded_fetch(None)(rows)

    def _seeded_fetch(self, generator: torch.Generator | None) -> Fetch:
        """Return `fetch`, seeded for each sample if it is random.

        The draws for a sample depend only on its row and on the pass, not on other samples.
        """
        if not self.random:
            return self.fetch
        seed = 0 if generator is None else int(torch.randint(2**62, (), generator=generator))

        def fetch_one(row: Tensor, reseed: Callable[[int], None]) -> Tensor:
            reseed(seed + int(row))
            return self.fetch(row)

        def fetch(rows: Tensor) -> Tensor:
            with host_generators() as reseed:
                return torch.cat([fetch_one(row, reseed) for row in rows.split(1)])

        return fetch


def prefetch(load: Callable[[int], T], starts: range, depth: int = 2) -> Iterator[T]:
    """Yield load(start) in order, computed in a thread that is at most `depth` results ahead.

    An error in the thread is raised here.
    """
    with ThreadPoolExecutor(1) as thread:
        results: deque[Future[T]] = deque()
        try:
            for start in starts:
                results.append(thread.submit(load, start))
                if len(results) > depth:
                    yield results.popleft().result()
            while results:
                yield results.popleft().result()
        finally:
            for result in results:
                result.cancel()


def stream(
    labels: Tensor,
    ids: Ids,
    pixels: Pixels | None,
    fetch: Fetch,
    shape: tuple[int, ...],
    random: bool = False,
) -> Streamed:
    """Make examples whose images are fetched from the host."""
    rows = torch.arange(len(labels))
    return Streamed(labels, ids, pixels, rows, torch.device("cpu"), shape, fetch, random=random)


def fits(size: int, device: torch.device) -> bool:
    """Return whether images fit on a device; half of a GPU's free memory is left to the model."""
    return device.type != "cuda" or size < torch.cuda.mem_get_info(device)[0] // 2


def examples(images: Tensor, labels: Tensor, ids: Ids, pixels: Pixels | None = None) -> Resident:
    """Check tensors on one device and make examples of them."""
    if not len(images) == len(labels) == len(ids):
        raise BadInput(
            f"{len(images)} images, {len(labels)} labels and {len(ids)} ids: give one of each."
        )
    if len(labels) == 0:
        raise BadInput("There are no samples.")
    if (images.dtype == torch.uint8) != (pixels is not None):
        raise BadInput("uint8 images need a mean and std per channel; float images must have none.")
    rows = torch.arange(len(labels))
    shape = tuple(images.shape[1:])
    return Resident(labels.to("cpu", torch.int64), ids, pixels, rows, images.device, shape, images)
