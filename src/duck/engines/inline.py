"""Executes tasks in this process, one after another."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from duck.engines.base import ENGINES, Engine, Start, always
from duck.errors import BadInput


@ENGINES.register("inline")
@dataclass(frozen=True)
class InlineEngine(Engine):
    """Executes one task at a time in the calling process."""

    workers: int = 1

    def __post_init__(self) -> None:
        if self.workers != 1:
            raise BadInput(
                f"The engine 'inline' has one worker, got --workers {self.workers}. "
                "Use --engine processes for more."
            )

    @contextmanager
    def open(
        self, function: Callable[[Any], Any], most_tasks: int
    ) -> Iterator[Callable[..., Iterator[Any]]]:
        """Give a callable that executes tasks when their results are taken."""

        def execute(tasks: Sequence[Any], start: Start = always) -> Iterator[Any]:
            return map(function, takewhile(start, tasks))

        yield execute


INLINE = InlineEngine()
"""The default of functions that take an engine."""
