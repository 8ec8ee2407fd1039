"""Decode many image files into one tensor, on all cores."""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from duck.data.decode import decode, decode_part
from duck.data.progress import ProgressCallback
from duck.engines import ProcessEngine

CHUNK_FILES = 256
"""Files that a thread or process decodes at a time."""
MIN_FILES_FOR_PROCESSES = 2000
"""Processes take seconds to start. For many small images they are faster all the same, because the
interpreter lock makes several threads slower than one."""


def decode_all(
    paths: Sequence[Path],
    shape: tuple[int, ...],
    size: int | None = None,
    progress: ProgressCallback | None = None,
) -> Tensor:
    """Return the images as uint8 (N, C, H, W), resized if a size is given.

    An image that does not have the shape in the end is an error.
    """
    if len(paths) < MIN_FILES_FOR_PROCESSES or not sys.executable:
        return decode_in_threads(paths, shape, size, progress)
    images = torch.empty(len(paths), *shape, dtype=torch.uint8)
    parts = [(part.start, paths[part.start : part.stop]) for part in _parts(len(paths))]
    engine = ProcessEngine(_cores())
    decode_one = partial(decode_part, shape=shape, size=size)
    done = 0
    for start, pixels in engine(decode_one, parts, lambda _: True):
        images[start : start + len(pixels)] = torch.from_numpy(pixels)
        done += len(pixels)
        if progress:
            progress(done, len(paths))
    return images


def decode_in_threads(
    paths: Sequence[Path],
    shape: tuple[int, ...],
    size: int | None = None,
    progress: ProgressCallback | None = None,
) -> Tensor:
    """Decode like `decode_all`, but start no processes: for one batch of many."""
    images = torch.empty(len(paths), *shape, dtype=torch.uint8)

    def fill(part: range) -> None:
        for row in part:
            images[row] = torch.from_numpy(decode(paths[row], shape, size))

    in_threads(fill, len(paths), progress)
    return images


def in_threads(
    work: Callable[[range], None], total: int, progress: ProgressCallback | None = None
) -> None:
    """Call `work` on parts of range(total) in threads; the first error ends it."""
    parts = _parts(total)
    with ThreadPoolExecutor(_cores()) as pool:
        futures = [pool.submit(work, part) for part in parts]
        try:
            for part, future in zip(parts, futures, strict=True):
                future.result()
                if progress:
                    progress(part.stop, total)
        finally:
            pool.shutdown(cancel_futures=True)


def _parts(total: int) -> list[range]:
    return [range(start, min(start + CHUNK_FILES, total)) for start in range(0, total, CHUNK_FILES)]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
