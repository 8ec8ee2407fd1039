"""The interface of engines: execute tasks and yield their results."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from duck.errors import BadInput
from duck.registry import Registry

Task = TypeVar("Task")
Result = TypeVar("Result")
Start = Callable[[Task], bool]
"""Called with each task before it begins; returns whether it may begin."""


class Engine(Protocol):
    """Executes tasks and yields each result as its task ends.

    The tasks begin in the given order and may end in another one. `start` is called in the
    caller's thread before each task; once it returns False, no further task begins. If a task
    raises an exception, it is raised in the caller, after the results of tasks that ended before.
    """

    @property
    def workers(self) -> int:
        """The number of tasks that are executed at the same time."""

    def __call__(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], start: Start[Task]
    ) -> Iterator[Result]:
        """Yield function(task) for each task. Function, tasks and results can be pickled."""


def check_workers(workers: int) -> None:
    """Raise an error for a number of workers below 1."""
    if workers < 1:
        raise BadInput(f"--workers must be at least 1, got {workers}.")


class EngineFactory(Protocol):
    """Makes an engine with the given number of workers."""

    def __call__(self, workers: int) -> Engine: ...


ENGINES: Registry[EngineFactory] = Registry("engine")
