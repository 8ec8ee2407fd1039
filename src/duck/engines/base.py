"""The interface of engines: execute tasks and yield their results."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice, takewhile
from typing import Any, TypeVar

from duck.errors import BadInput
from duck.registry import Registry

Task = TypeVar("Task")
Result = TypeVar("Result")
Start = Callable[[Any], bool]
"""Called with each task before it begins; returns whether it may begin."""


def always(task: object) -> bool:
    """Let every task begin."""
    return True


class Workers(ABC):
    """Workers that hold one function and execute it on tasks."""

    running: Sequence[Any] = ()
    """The submitted tasks whose results were not yielded."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, tasks: Sequence[Any], start: Start = always) -> Iterator[Any]:
        """Yield the result of each task that `start` lets begin, in the order they end."""
        pending = takewhile(start, tasks)
        self.running = [self.submit(task) for task in islice(pending, self.count)]
        while self.running:
            finished = self.wait(self.running)
            self.running = [task for task in self.running if task not in finished]
            yield from self._results(finished)
            more = [self.submit(task) for task in islice(pending, len(finished))]
            self.running = [*self.running, *more]

    @abstractmethod
    def submit(self, task: Any) -> Any:
        """Let a worker execute a task; return a handle of its result."""

    @abstractmethod
    def wait(self, handles: Sequence[Any]) -> Sequence[Any]:
        """Wait for a task to end and return the handles of all that have ended."""

    @abstractmethod
    def result(self, handle: Any) -> Any:
        """Return the result of a task that has ended, or raise its exception."""

    def _results(self, finished: Sequence[Any]) -> Iterator[Any]:
        """Yield the results, then raise the first error: no finished result is lost."""
        errors = []
        for handle in finished:
            try:
                result = self.result(handle)
            except Exception as error:
                errors.append(error)
            else:
                yield result
        if errors:
            raise errors[0]


class Engine(ABC):
    """Executes tasks and yields each result as its task ends.

    The tasks begin in the given order and may end in another one. `start` is called in the
    caller's thread before each task; once it returns False, no further task begins. If a task
    raises an exception, it is raised in the caller, after the results of tasks that ended before.
    Function, tasks and results can be pickled.
    """

    workers: int
    """The number of tasks that are executed at the same time."""

    def __call__(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], start: Start = always
    ) -> Iterator[Result]:
        """Yield function(task) for each task."""
        with self.open(function, len(tasks)) as execute:
            yield from execute(tasks, start)

    @abstractmethod
    def open(
        self, function: Callable[[Any], Any], most_tasks: int
    ) -> AbstractContextManager[Callable[..., Iterator[Any]]]:
        """Start workers that serve several sequences of tasks.

        The context gives a callable that takes tasks and, if wanted, `start`.

        most_tasks   the length of the longest sequence: no more workers are started
        """


def check_workers(workers: int) -> None:
    """Raise an error for a number of workers below 1."""
    if workers < 1:
        raise BadInput(f"--workers must be at least 1, got {workers}.")


ENGINES: Registry[Callable[[int], Engine]] = Registry("engine")
"""Each entry makes an engine with the given number of workers."""
