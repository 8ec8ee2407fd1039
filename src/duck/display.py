"""How long work shows its progress and its messages: on the console, or not at all."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from duck.data.progress import ProgressCallback

if TYPE_CHECKING:
    from duck.unlearning import Watch

T = TypeVar("T")


class JobProgress(NamedTuple, Generic[T]):
    """How far many jobs are: at the start, when a job begins, and when one has ended."""

    done: int
    left: int
    seconds_left: float | None
    """None where no job has been timed yet."""
    job: object = None
    """The job that begins or has ended."""
    result: T | None = None
    """The result of a job that has ended."""


@contextmanager
def _ignore(title: str) -> Iterator[Callable[..., None]]:
    """Yield a progress callback that shows nothing."""
    yield lambda *progress: None


@dataclass(frozen=True)
class Display:
    """How progress and messages are shown; by default they are not."""

    progress: Callable[[str], AbstractContextManager[ProgressCallback]] = _ignore
    """Called with a title; its callback is called with (done, total)."""
    message: Callable[[str], None] = lambda text: None
    training: "Callable[[str], AbstractContextManager[Watch]]" = _ignore
    """Called with a title; its callback is called after steps and after each epoch."""
