"""Many image files to one tensor, on all cores."""

import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from duck.data.decode import decode
from duck.data.progress import ProgressCallback
from duck.errors import BadInput
from duck.runtime import worker_command, worker_environment

CHUNK = 256
"""Files that a thread takes at a time."""
MANY = 2000
"""From so many files on, processes: for small images the interpreter lock makes threads slower than one of them."""


def decode_all(
    paths: Sequence[Path],
    shape: tuple[int, ...],
    size: int | None = None,
    progress: ProgressCallback | None = None,
) -> Tensor:
    """uint8 (N, C, H, W) of the files, resized where a size is given; each must come out in the shape."""
    if len(paths) < MANY or not sys.executable or not hasattr(os, "readv"):
        return decode_in_threads(paths, shape, size, progress)
    images = torch.empty(len(paths), *shape, dtype=torch.uint8)
    _in_processes(paths, images, size, progress)
    return images


def decode_in_threads(
    paths: Sequence[Path],
    shape: tuple[int, ...],
    size: int | None = None,
    progress: ProgressCallback | None = None,
) -> Tensor:
    """The same, without the seconds that processes take to start: for one batch of many."""
    images = torch.empty(len(paths), *shape, dtype=torch.uint8)

    def fill(part: range) -> None:
        for row in part:
            images[row] = torch.from_numpy(decode(paths[row], shape, size))

    in_threads(fill, len(paths), progress)
    return images


def in_threads(
    work: Callable[[range], None], total: int, progress: ProgressCallback | None = None
) -> None:
    """Work on 0..total-1 in chunks; the first error ends it."""
    parts = [range(start, min(start + CHUNK, total)) for start in range(0, total, CHUNK)]
    with ThreadPoolExecutor(_cores()) as pool:
        futures = [pool.submit(work, part) for part in parts]
        try:
            for part, future in zip(parts, futures, strict=True):
                future.result()
                if progress:
                    progress(part.stop, total)
        finally:
            pool.shutdown(cancel_futures=True)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class _Worker:
    """A process that decodes a share of the files, and the memory that its pixels go to."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    memory: memoryview
    filled: int = 0

    def read(self, pipe: int) -> bool:
        """Take what has come; False at the end."""
        count = (
            os.readv(pipe, [self.memory[self.filled :]]) if self.filled < len(self.memory) else 0
        )
        self.filled += count
        return count > 0

    def check(self) -> None:
        self.process.wait()
        if self.filled < len(self.memory):
            self.errors.seek(0)
            lines = self.errors.read().decode(errors="replace").strip().splitlines()
            raise BadInput(
                lines[-1]
                if lines
                else f"A process that decodes images ended with status {self.process.returncode}."
            )


def _in_processes(
    paths: Sequence[Path], images: Tensor, size: int | None, progress: ProgressCallback | None
) -> None:
    # Not multiprocessing: that would run the caller's script again (spawn), or copy a process that has threads (fork).
    share = -(-len(paths) // _cores())
    parts = [slice(start, start + share) for start in range(0, len(paths), share)]
    with ExitStack() as stack:
        workers = [_start(stack, paths[part], images[part], size) for part in parts]
        _collect(workers, len(paths), images[0].nbytes, progress)


def _start(stack: ExitStack, paths: Sequence[Path], images: Tensor, size: int | None) -> _Worker:
    command, environment = (
        worker_command("duck.data.decode", str(size or 0), *map(str, images.shape[1:])),
        worker_environment(),
    )
    names = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    errors = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    names.write(b"\0".join(os.fsencode(path) for path in paths))
    names.seek(0)
    process = stack.enter_context(
        subprocess.Popen(
            command, stdin=names, stdout=subprocess.PIPE, stderr=errors, env=environment
        )
    )
    stack.callback(process.kill)
    return _Worker(process, errors, images.view(-1).numpy().data)


def _collect(
    workers: list[_Worker], total: int, image_bytes: int, progress: ProgressCallback | None
) -> None:
    told = 0
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            assert worker.process.stdout is not None
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        while selector.get_map():
            for key, _ in selector.select():
                if not key.data.read(key.fd):
                    selector.unregister(key.fileobj)
                    key.data.check()
            done = sum(worker.filled for worker in workers) // image_bytes
            if progress and (done - told >= CHUNK or told < done == total):
                progress(done, total)
                told = done
