"""Images as uint8 on the device, or streamed to it: normalised and augmented there, an epoch at a time."""

import hashlib
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from duck.errors import BadInput
from duck.runtime import host_generators
from duck.types import Augment, Batch, Examples, Ids

EPOCH_BYTES = 2**29
"""An epoch is augmented at once up to this size, in parts of this size above it."""

T = TypeVar("T")
Fetch = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Pixels:
    """How uint8 becomes the model's input: (x / 255 - mean) / std per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __str__(self) -> str:
        mean, std = (
            ", ".join(f"{value:.3f}" for value in values) for values in (self.mean, self.std)
        )
        return f"mean ({mean}) and std ({std})"

    def on(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        scale = torch.tensor([1 / (255 * s) for s in self.std], device=device).view(-1, 1, 1)
        shift = torch.tensor(
            [-m / s for m, s in zip(self.mean, self.std, strict=True)], device=device
        ).view(-1, 1, 1)
        return lambda images: images.float().mul_(scale).add_(shift)


class Moves:
    """A random crop (reflected at the border) and mirroring for each image of an epoch, drawn at once on the host."""

    def __init__(
        self, augment: Augment, count: int, shape: tuple[int, ...], generator: torch.Generator
    ) -> None:
        height, width = shape[-2:]
        reach = max(1, min(height, width) // 8)
        self.shifts = torch.randint(-reach, reach + 1, (2, count), generator=generator)
        self.mirrored = torch.rand(count, generator=generator) < (
            0.5 if augment == "crop-flip" else 0.0
        )
        self.height, self.width = height, width

    def __call__(self, images: Tensor, rows: Tensor, part: slice) -> Tensor:
        """Crops of images[rows], gathered from `images` in one indexing operation."""
        down, right = self.shifts[:, part].to(images.device).unsqueeze(-1)
        across = torch.arange(self.width, device=images.device).expand(len(rows), -1)
        across = torch.where(
            self.mirrored[part].to(images.device).unsqueeze(-1), across.flip(-1), across
        )
        y = _reflect(torch.arange(self.height, device=images.device) + down, self.height)
        x = _reflect(across + right, self.width)
        # The slice between index tensors moves to the end: (n, H, W, C), which is channels-last memory.
        return images[rows.view(-1, 1, 1), :, y.unsqueeze(2), x.unsqueeze(1)].permute(0, 3, 1, 2)


def _reflect(index: Tensor, size: int) -> Tensor:
    return (size - 1) - ((size - 1) - index.abs()).abs()


@dataclass(frozen=True, eq=False)
class _Indexed:
    """What Resident and Streamed share: order, labels, ids, and the making of batches."""

    labels: Tensor
    ids: Ids
    pixels: Pixels | None
    """None: the images are floats that the model takes as they are."""
    rows: Tensor
    """Of the underlying images, in the order of `labels` and `ids`."""
    device: torch.device

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    def _epoch(
        self, rows: Tensor, moves: Moves | None, size: int, generator: torch.Generator | None
    ) -> Iterator[Tensor]:
        """Images of the given underlying rows on the device, in parts of a multiple of `size` rows."""
        raise NotImplementedError

    def batches(
        self, size: int, generator: torch.Generator | None = None, augment: Augment = "none"
    ) -> Iterator[Batch]:
        if size < 1:
            raise BadInput(f"The batch size must be at least 1, got {size}.")
        if augment != "none" and generator is None:
            raise BadInput("Augmentation is random and needs a generator.")
        if augment != "none" and len(self.shape) != 3:
            raise BadInput(
                f"Crops need images (channels, height, width), these have shape {self.shape}: use augment='none'."
            )
        order, size = _order(len(self), size, generator)
        moves = (
            Moves(augment, len(order), self.shape, generator)
            if augment != "none" and generator is not None
            else None
        )
        labels, places = self.labels[order].to(self.device), order.to(self.device)
        normalise = self.pixels.on(self.device) if self.pixels else lambda images: images
        start = 0
        for part in self._epoch(self.rows[order], moves, size, generator):
            for images in part.split(size):
                here = slice(start, start + len(images))
                start += len(images)
                yield Batch(normalise(images), labels[here], places[here])


def _order(count: int, size: int, generator: torch.Generator | None) -> tuple[Tensor, int]:
    if generator is None:
        return torch.arange(count), size
    order, size = torch.randperm(count, generator=generator), max(1, min(size, count))
    missing = -count % size
    return torch.cat([order, order[:missing]]), size


@dataclass(frozen=True, eq=False)
class Resident(_Indexed):
    """All images in the memory of the device that trains."""

    images: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.images.shape[1:])

    def take(self, rows: Tensor) -> "Resident":
        return replace(
            self, labels=self.labels[rows], ids=self.ids[rows.numpy()], rows=self.rows[rows]
        )

    def to(self, device: torch.device | str) -> "Examples":
        """There whole if it fits, else streamed from here."""
        device = torch.device(device)
        if device == self.device:
            return self
        if fits(self.images.nbytes, device):
            return replace(self, images=self.images.to(device), device=device)
        return Streamed(
            self.labels,
            self.ids,
            self.pixels,
            self.rows,
            device,
            self.images.__getitem__,
            self.shape,
        )

    def _epoch(
        self, rows: Tensor, moves: Moves | None, size: int, generator: torch.Generator | None
    ) -> Iterator[Tensor]:
        rows = rows.to(self.device)
        step = max(1, EPOCH_BYTES // (self.images[:1].nbytes * size)) * size
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            yield moves(self.images, rows[part], part) if moves else self.images[rows[part]]

    @cached_property
    def digests(self) -> list[bytes]:
        return _digests(self, self.images.__getitem__)

    def fingerprint(self) -> str:
        return _fingerprint(self, self.images.__getitem__)


@dataclass(frozen=True, eq=False)
class Streamed(_Indexed):
    """Images fetched from the host batch by batch, the next ones while the device works: the same batches as Resident."""

    fetch: Fetch
    """Underlying rows -> images on the host: a memory map, or decoding."""
    size: tuple[int, ...]
    random: bool = False
    """Fetching draws from the global generators. A pass with a generator draws anew, every pass without one draws the same."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.size

    def take(self, rows: Tensor) -> "Streamed":
        return replace(
            self, labels=self.labels[rows], ids=self.ids[rows.numpy()], rows=self.rows[rows]
        )

    def to(self, device: torch.device | str) -> "Streamed":
        return replace(self, device=torch.device(device))

    def _epoch(
        self, rows: Tensor, moves: Moves | None, size: int, generator: torch.Generator | None
    ) -> Iterator[Tensor]:
        fetch, starts = self._fetch(generator), range(0, len(rows), size)

        def load(start: int) -> Tensor:
            part = slice(start, start + size)
            images = fetch(rows[part])
            if self.device.type == "cuda":
                images = images.pin_memory()
            images = images.to(self.device, non_blocking=True)
            return (
                moves(images, torch.arange(len(images), device=self.device), part)
                if moves
                else images
            )

        # A thread would draw from the global generators while the net that trains draws its dropout from them.
        return map(load, starts) if self.random else ahead(load, starts)

    def _fetch(self, generator: torch.Generator | None = None) -> Fetch:
        """Where fetching is random, what is drawn for a sample depends on the pass and its row alone, not on the samples beside it."""
        if not self.random:
            return self.fetch
        seed = 0 if generator is None else int(torch.randint(2**62, (), generator=generator))

        def one(row: Tensor, reseed: Callable[[int], None]) -> Tensor:
            reseed(seed + int(row))
            return self.fetch(row)

        def fetch(rows: Tensor) -> Tensor:
            with host_generators() as reseed:
                return torch.cat([one(row, reseed) for row in rows.split(1)])

        return fetch

    @cached_property
    def digests(self) -> list[bytes]:
        return _digests(self, self._fetch())

    def fingerprint(self) -> str:
        return _fingerprint(self, self._fetch())


def ahead(load: Callable[[int], T], starts: range, depth: int = 2) -> Iterator[T]:
    """Results of `load` in order, computed in a thread up to `depth` ahead; its errors are raised here."""
    results: queue.Queue[T | BaseException] = queue.Queue(depth)
    stopped = threading.Event()

    def put(result: T | BaseException) -> None:
        while not stopped.is_set():
            try:
                results.put(result, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        for start in starts:
            if stopped.is_set():
                return
            try:
                put(load(start))
            except BaseException as error:
                put(error)
                return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        for _ in starts:
            result = results.get()
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        stopped.set()
        thread.join()


def fits(size: int, device: torch.device) -> bool:
    """Half of the free memory is left to the model; the host always takes what it already holds."""
    return device.type != "cuda" or size < torch.cuda.mem_get_info(device)[0] // 2


def examples(images: Tensor, labels: Tensor, ids: Ids, pixels: Pixels | None = None) -> Resident:
    """Examples of tensors on one device, checked."""
    if not len(images) == len(labels) == len(ids):
        raise BadInput(
            f"{len(images)} images, {len(labels)} labels and {len(ids)} ids: they must be as many."
        )
    if len(labels) == 0:
        raise BadInput("There are no samples.")
    if (images.dtype == torch.uint8) != (pixels is not None):
        raise BadInput("uint8 images need a mean and std per channel; float images must have none.")
    return Resident(
        labels.to("cpu", torch.int64), ids, pixels, torch.arange(len(labels)), images.device, images
    )


def _fingerprint(source: Resident | Streamed, fetch: Fetch) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update("\n".join(source.ids.tolist()).encode())
    digest.update(np.ascontiguousarray(source.labels.numpy()).tobytes())
    for images in _stored(source, fetch):
        digest.update(images.tobytes())
    return digest.hexdigest()


def _digests(source: Resident | Streamed, fetch: Fetch) -> list[bytes]:
    return [
        hashlib.blake2b(image.tobytes(), digest_size=16).digest()
        for images in _stored(source, fetch)
        for image in images
    ]


def _stored(source: Resident | Streamed, fetch: Fetch) -> Iterator[np.typing.NDArray[np.uint8]]:
    """Yield the images as they are stored, a row of bytes each, in the order of the ids."""
    for rows in source.rows.split(4096):
        images = fetch(rows.to(source.device) if isinstance(source, Resident) else rows)
        # As bytes: NumPy has no bfloat16.
        yield images.cpu().reshape(len(rows), -1).contiguous().view(torch.uint8).numpy()
