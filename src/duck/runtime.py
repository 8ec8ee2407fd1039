"""Device, precision, random state and time: what every stage needs and no stage is about."""

import gc
import os
import platform
import random
import sys
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


def worker_command(module: str, *words: str) -> list[str]:
    """The command line of a Python process that runs a module of ours. It does not look for modules in the working folder."""
    return [sys.executable, "-P", "-m", module, *words]


def worker_environment(**more: str) -> dict[str, str]:
    """The environment of such a process: it finds modules where this one does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **more}


def pick_device(name: str = "auto") -> torch.device:
    """The GPU where there is one, else the CPU; or the named device, if it is there."""
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
    """Of the first weight or buffer."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    if precision == "float32" or (precision == "auto" and device.type != "cuda"):
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients; afterwards each submodule is back in its own mode."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def seeded(seed: int, *streams: str) -> torch.Generator:
    """A generator of its own for each purpose: the same seed and purpose give the same numbers."""
    check_seed(seed)
    generator = torch.Generator()
    mixed = seed
    for byte in "/".join(streams).encode():
        mixed = (mixed * 1_000_003 + byte + 1) % (2**63)
    return generator.manual_seed(mixed)


def device_name(device: torch.device) -> str:
    """The GPU's model; for the CPU its kind."""
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else platform.processor() or platform.machine()
    )


@contextmanager
def global_seed(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """For initialisation and dropout, which take no generator: the global ones, seeded here and put back after."""
    with fixed_seed(int(torch.randint(2**62, (), generator=generator)), device):
        yield


@contextmanager
def fixed_seed(seed: int, device: torch.device) -> Iterator[None]:
    """The same, with a number. Of the accelerators only the given one is seeded: the others' generators would not be put back."""
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
    """Seeds the global generators of Python, NumPy and torch on the host, as often as wanted; they are put back after."""
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
    """Seconds spent inside, the device's queued work included, what ran under `paused` not."""

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
        """Time that does not count; where the watch does not run, nothing to pause."""
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
    """Under torchrun: join the other processes, one GPU each; else nothing. Gives the device to use."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    on_gpu = device != "cpu" and torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else "cpu"
        dist.barrier()  # one that leaves early breaks the others' connections
    finally:
        # DistributedDataParallel lies in a reference cycle; freed after its group, at exit, it aborts the process now and then.
        gc.collect()
        dist.destroy_process_group()


def is_first() -> bool:
    """The process that prints and writes."""
    return not dist.is_initialized() or dist.get_rank() == 0
