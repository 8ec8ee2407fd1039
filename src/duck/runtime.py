"""Device, precision, random state and time measurement."""

import gc
import os
import platform
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from duck.checks import check_seed
from duck.errors import BadInput

Precision = Literal["auto", "float32", "bfloat16"]


def pick_device(name: str = "auto") -> torch.device:
    """Return the named device; for `auto` the GPU if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadInput(
            f"No device {name!r} here: {str(error).splitlines()[0]} Use --device auto."
        ) from error
    return device


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the first parameter or buffer."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the autocast context for a precision, which does nothing for float32."""
    if precision == "float32" or (precision == "auto" and device.type != "cuda"):
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


@contextmanager
def restoring_modes(model: nn.Module) -> Iterator[None]:
    """Restore the train or eval mode of each module at the end."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch to eval mode without gradients; afterwards restore the mode of each module."""
    with restoring_modes(model), torch.no_grad():
        model.eval()
        yield


def seeded(seed: int, *streams: str) -> torch.Generator:
    """Return a generator for a purpose: the same seed and names give the same numbers."""
    check_seed(seed)
    generator = torch.Generator()
    mixed = seed
    for byte in "/".join(streams).encode():
        mixed = (mixed * 1_000_003 + byte + 1) % (2**63)
    return generator.manual_seed(mixed)


def device_name(device: torch.device) -> str:
    """Return the name of the GPU or the type of the CPU."""
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else platform.processor() or platform.machine()
    )


@contextmanager
def global_seed(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Seed the global generators from a generator; afterwards restore them.

    Initialisation and dropout accept no generator.
    """
    with fixed_seed(int(torch.randint(2**62, (), generator=generator)), device):
        yield


@contextmanager
def fixed_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators with a number; afterwards restore them.

    Only the given device is seeded, because the generators of other devices are not restored.
    """
    check_seed(seed)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        if device.type in ("cpu", "cuda"):
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        yield


@contextmanager
def host_generators() -> Iterator[Callable[[int], None]]:
    """Yield a function that seeds the global generators of Python, NumPy and torch on the host.

    Afterwards they are restored.
    """
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 - data sets use it

    def seed(value: int) -> None:
        random.seed(value)
        np.random.seed(value % 2**32)  # noqa: NPY002
        torch.default_generator.manual_seed(value)

    try:
        with torch.random.fork_rng([]):
            yield seed
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002


class Stopwatch:
    """Measures time, including queued device work, but not what runs inside `paused`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds = 0.0
        self._since: float | None = None

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def __enter__(self) -> "Stopwatch":
        self._since = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        if self._since is not None:
            self.seconds += self._now() - self._since
        self._since = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the measurement, if it is running."""
        if self._since is None:
            yield
            return
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()


@contextmanager
def distributed(device: str) -> Iterator[str]:
    """Join the process group if started by torchrun; yield the device to use."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    on_gpu = device != "cpu" and torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else "cpu"
        dist.barrier()  # a process that leaves early breaks the connections of the others
    finally:
        # DistributedDataParallel is part of a reference cycle. If it is freed after its group, at
        # exit, it sometimes aborts the process.
        gc.collect()
        dist.destroy_process_group()


def is_distributed() -> bool:
    """Return whether several processes train one model together."""
    return dist.is_initialized()


def is_first() -> bool:
    """Return whether this is the process that prints and writes."""
    return not is_distributed() or dist.get_rank() == 0
