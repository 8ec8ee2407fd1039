"""A training step as a CUDA graph: recorded once for each shape of batch and replayed, so that small batches do not wait for the host."""

import threading
from collections import Counter
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from duck.training.batching import Step
from duck.types import Batch

Shape = tuple[object, ...]
WARM = 3
"""Steps of a shape that run as they are before it is recorded: they make the optimiser's state and choose kernels."""


class Recorded:
    """Runs steps that do the same work on every batch of a shape. What cannot be recorded, a model that asks the host, runs as it is."""

    def __init__(self, run: Callable[[Step], Tensor], device: torch.device) -> None:
        self.run, self.device, self.stream = run, device, _stream(device, threading.get_ident())
        self.graphs: dict[Shape, _Graph | None] = {}
        self.warm: Counter[Shape] = Counter()

    def __call__(self, step: Step) -> Tensor:
        shape = tuple(
            (name, *(tuple(part.shape) for part in batch)) for name, batch in step.items()
        )
        if shape not in self.graphs:
            if self.warm[shape] < WARM:
                self.warm[shape] += 1
                return self._beside(step)
            self.graphs[shape] = _record(self.run, step, self.stream)
        graph = self.graphs[shape]
        return graph(step) if graph else self._beside(step)

    def _beside(self, step: Step) -> Tensor:
        """On the stream that records: gradients must not be tied to another one."""
        usual = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(usual)
        with torch.cuda.stream(self.stream):
            value = self.run(step)
        usual.wait_stream(self.stream)
        return value


@cache
def _stream(device: torch.device, thread: int) -> torch.cuda.Stream:
    """One for all recordings of a thread: for each stream cuBLAS keeps memory that is not given back."""
    return torch.cuda.Stream(device)


class _Graph:
    def __init__(
        self, run: Callable[[Step], Tensor], step: Step, stream: torch.cuda.Stream
    ) -> None:
        self.step = {name: Batch(*(part.clone() for part in batch)) for name, batch in step.items()}
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            self.value = run(self.step)

    def __call__(self, step: Step) -> Tensor:
        for name, batch in step.items():
            for place, part in zip(self.step[name], batch, strict=True):
                place.copy_(part)
        self.graph.replay()
        return self.value.clone()


def _record(run: Callable[[Step], Tensor], step: Step, stream: torch.cuda.Stream) -> _Graph | None:
    try:
        return _Graph(run, step, stream)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # CUDA's word for what a recording cannot hold
        torch.cuda.synchronize(stream.device)
        return None
