"""What every engine does: execute tasks and yield their results."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from duck.registry import Registry

Task = TypeVar("Task")
Result = TypeVar("Result")


class Engine(Protocol):
    """Executes tasks and yields each result as its task ends.

    The tasks begin in the given order and may end in another one. `start` is called in the
    caller's thread before each task; once it returns False, no further task begins. An exception
    that a task raises is raised in the caller, after the results of the tasks that ended before.
    """

    @property
    def workers(self) -> int:
        """How many tasks are executed at the same time."""

    def __call__(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        start: Callable[[Task], bool],
    ) -> Iterator[Result]:
        """Yield function(task) for each task. Function, tasks and results can be pickled."""


class EngineFactory(Protocol):
    """Makes an engine with the given number of workers."""

    def __call__(self, workers: int) -> Engine: ...


ENGINES: Registry[EngineFactory] = Registry("engine")
