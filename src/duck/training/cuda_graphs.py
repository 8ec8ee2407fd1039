"""A training step as a CUDA graph.

It is recorded once for each shape of batch and replayed, so that small batches do not wait for the
host.
"""

import threading
from collections import Counter
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from duck.training.batching import Step
from duck.types import Batch

Shape = tuple[object, ...]
WARMUP_STEPS = 3
"""Steps of a shape that run normally before recording. They create the optimizer's state and choose
kernels."""


class GraphedStep:
    """Runs a step that does the same work on every batch of a shape.

    A step that cannot be recorded, for example because the model reads a value on the host, runs
    normally.
    """

    def __init__(self, run: Callable[[Step], Tensor], device: torch.device) -> None:
        self.run = run
        self.device = device
        self.stream = _recording_stream(device, threading.get_ident())
        self.graphs: dict[Shape, _Graph | None] = {}
        self.warmup_counts: Counter[Shape] = Counter()

    def __call__(self, step: Step) -> Tensor:
        shape = _shape_of(step)
        if shape not in self.graphs:
            if self.warmup_counts[shape] < WARMUP_STEPS:
                self.warmup_counts[shape] += 1
                return self._run_directly(step)
            self.graphs[shape] = _record(self.run, step, self.stream)
        graph = self.graphs[shape]
        return graph(step) if graph else self._run_directly(step)

    def _run_directly(self, step: Step) -> Tensor:
        """Run a step on the recording stream: gradients must not be tied to another stream."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            value = self.run(step)
        current.wait_stream(self.stream)
        return value


def _shape_of(step: Step) -> Shape:
    return tuple((name, *(tuple(part.shape) for part in batch)) for name, batch in step.items())


@cache
def _recording_stream(device: torch.device, thread: int) -> torch.cuda.Stream:
    """Return one stream for all recordings of a thread.

    cuBLAS allocates memory for each stream and does not release it.
    """
    return torch.cuda.Stream(device)


class _Graph:
    """A recorded step with its input and output tensors."""

    def __init__(
        self, run: Callable[[Step], Tensor], step: Step, stream: torch.cuda.Stream
    ) -> None:
        self.step = {name: Batch(*(part.clone() for part in batch)) for name, batch in step.items()}
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            self.value = run(self.step)

    def __call__(self, step: Step) -> Tensor:
        for name, batch in step.items():
            for buffer, part in zip(self.step[name], batch, strict=True):
                buffer.copy_(part)
        self.graph.replay()
        return self.value.clone()


def _record(run: Callable[[Step], Tensor], step: Step, stream: torch.cuda.Stream) -> _Graph | None:
    """Record a step; return None if it cannot be recorded."""
    try:
        return _Graph(run, step, stream)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # CUDA raises it for operations that a graph cannot contain
        torch.cuda.synchronize(stream.device)
        return None
