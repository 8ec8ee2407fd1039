"""Images in memory to one size, and how many of them have room there."""

import os
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from duck.data.decode import scaled_size
from duck.data.examples import Resident, Streamed
from duck.errors import BadInput
from duck.types import Examples

SAMPLE = 4096
"""Images that the mean and std come from where they are not all in memory."""


def resize(images: Tensor, size: int) -> Tensor:
    """Images (N, C, H, W) with the short side scaled to `size`, cut to the square at the centre."""
    height, width = scaled_size(images.shape[-2], images.shape[-1], size)
    scaled = interpolate(images, (height, width), mode="bilinear", antialias=True)
    top, left = (height - size) // 2, (width - size) // 2
    return scaled[..., top : top + size, left : left + size]


def resized(examples: Resident, size: int | None, max_bytes: int | None = None) -> Examples:
    """The examples with images of that size: made now if the result has room in memory, else batch by batch."""
    if size is None or examples.shape[1:] == (size, size):
        return examples
    if len(examples.shape) != 3:
        raise BadInput(
            f"Only images (channels, height, width) can be resized, these have shape {examples.shape}: leave the size out."
        )
    images, shape = examples.images, (examples.shape[0], size, size)
    if len(images) * torch.Size(shape).numel() * images.element_size() > (
        room() if max_bytes is None else max_bytes
    ):
        rest = (examples.labels, examples.ids, examples.pixels, examples.rows, examples.device)
        return Streamed(*rest, lambda rows: resize(images[rows], size), shape)
    result = torch.empty(len(images), *shape, dtype=images.dtype)
    for source, target in zip(images.split(256), result.split(256), strict=True):
        target.copy_(resize(source, size))
    return replace(examples, images=result)


def spread(count: int, most: int = SAMPLE) -> Tensor:
    """At most so many rows, evenly over all."""
    return torch.arange(0, count, -(-count // most))


def room() -> int:
    """Bytes of host memory that images may take: half of what is free."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        facts = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        if "MemAvailable" in facts:
            return int(facts["MemAvailable"].split()[0]) * 1024 // 2
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
