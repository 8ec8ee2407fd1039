"""Executes tasks in this process, one after another."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from duck.engines.base import ENGINES, Result, Start, Task
from duck.errors import BadInput


@ENGINES.register("inline")
@dataclass(frozen=True)
class InlineEngine:
    """Executes one task at a time in the calling process."""

    workers: int = 1

    def __post_init__(self) -> None:
        if self.workers != 1:
            raise BadInput(
                f"The engine 'inline' has one worker, got --workers {self.workers}. "
                "Use --engine processes for more."
            )

    def __call__(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], start: Start[Task]
    ) -> Iterator[Result]:
        """Yield function(task) for each task that `start` lets begin."""
        for task in tasks:
            if not start(task):
                return
            yield function(task)
