"""Resize images in memory; how much memory images may take."""

import os
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from duck.data.decode import scaled_size
from duck.data.examples import Examples, Resident
from duck.errors import BadInput

MAX_STATISTICS_IMAGES = 4096
"""Number of images for mean and std, if the images are not all in memory."""


def resize(images: Tensor, size: int) -> Tensor:
    """Scale the short side of images (N, C, H, W) to `size` and crop the square at the centre."""
    height, width = scaled_size(images.shape[-2], images.shape[-1], size)
    scaled = interpolate(images, (height, width), mode="bilinear", antialias=True)
    top = (height - size) // 2
    left = (width - size) // 2
    return scaled[..., top : top + size, left : left + size]


def resized(examples: Resident, size: int | None) -> Examples:
    """Return examples with images of that size.

    They are resized at once if the result fits in memory, else batch by batch.
    """
    if size is None or examples.shape[1:] == (size, size):
        return examples
    if len(examples.shape) != 3:
        raise BadInput(f"Only images (C, H, W) can be resized, these have shape {examples.shape}.")
    images = examples.images
    shape = (examples.shape[0], size, size)
    if not fit_in_memory(len(images) * torch.Size(shape).numel() * images.element_size()):
        return examples.streamed(lambda rows: resize(images[rows], size), shape)
    result = torch.empty(len(images), *shape, dtype=images.dtype)
    for source, target in zip(images.split(256), result.split(256), strict=True):
        target.copy_(resize(source, size))
    return replace(examples, images=result, shape=shape)


def evenly_spaced_rows(count: int, most: int = MAX_STATISTICS_IMAGES) -> Tensor:
    """Return at most `most` rows of `count`, evenly spaced."""
    return torch.arange(0, count, -(-count // most))


def fit_in_memory(size: int) -> bool:
    """Return whether images of that many bytes fit in half of the free memory of the host."""
    return size <= free_memory() // 2


def free_memory() -> int:
    """Return the free memory of the host in bytes."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        facts = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        if "MemAvailable" in facts:
            return int(facts["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
