"""Executes tasks in several processes of this machine, with joblib's loky executor.

`joblib.Parallel` is not used: when a worker dies, its generator discards results that have ended
but were not yet yielded, and it calls `start` in another thread.
"""

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from duck.engines.base import ENGINES, Engine, Workers, check_workers
from duck.errors import BadInput, DuckError

# Sums over several threads depend on their number: with one, results equal those of one process.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# Python starts a worker with -m, which would import from the current folder.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}


@ENGINES.register("processes")
@dataclass(frozen=True)
class ProcessEngine(Engine):
    """Executes tasks in `workers` processes, each with one CPU thread. No process is forked."""

    workers: int

    def __post_init__(self) -> None:
        check_workers(self.workers)

    @contextmanager
    def open(self, function: Callable[[Any], Any], most_tasks: int) -> Iterator["_Processes"]:
        """Start processes. If an error or Ctrl-C interrupts their tasks, they are killed."""
        count = max(1, min(self.workers, most_tasks))
        pickled_function = to_bytes(function)
        with _environment(SAFE_PATH):
            # Commands that start no process need not load joblib.
            from joblib.externals.loky import ProcessPoolExecutor

            executor = ProcessPoolExecutor(
                count,
                initializer=_initialize,
                initargs=(pickled_function, os.getpid()),
                env=ONE_THREAD | SAFE_PATH,
            )
        workers = _Processes(count, executor)
        is_busy = True
        try:
            yield workers
            is_busy = bool(workers.running)
        finally:
            executor.shutdown(kill_workers=is_busy)


class _Processes(Workers):
    """The worker processes of an executor."""

    def __init__(self, count: int, executor: Any) -> None:
        super().__init__(count)
        self.executor = executor

    def submit(self, task: Any) -> "Future[Any]":
        """Submit a task; if a worker has died, return a future with the error."""
        try:
            with _environment(SAFE_PATH):
                future: Future[Any] = self.executor.submit(_execute, task)
        except BrokenProcessPool as error:
            future = Future()
            future.set_exception(error)
        return future

    def wait(self, handles: "Sequence[Future[Any]]") -> "Sequence[Future[Any]]":
        """Wait for a task to end and return all that have ended."""
        finished, _ = wait(handles, return_when=FIRST_COMPLETED)
        return [future for future in handles if future in finished]

    def result(self, handle: "Future[Any]") -> Any:
        """Return the result of a task, or raise its exception."""
        try:
            return handle.result()
        except BrokenProcessPool as error:
            reason = " ".join(str(error).split())
            raise DuckError(
                f"A worker process ended unexpectedly: {reason} Finished results are kept. Rerun "
                "the same command to resume, with fewer --workers if memory was short."
            ) from error


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the helper processes that loky starts, then restore them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def to_bytes(function: Callable[[Any], Any]) -> bytes:
    """Pickle the function that workers execute."""
    try:
        return pickle.dumps(function)
    except Exception as error:
        raise BadInput(
            f"The data or the model cannot be sent to other processes ({error}). "
            "Use --engine inline."
        ) from error


# The function of a worker process, pickled until the first task needs it.
_pickled_function: bytes = b""
_function: Callable[[Any], Any] | None = None


def _initialize(pickled_function: bytes, parent: int) -> None:
    """Prepare a worker process."""
    global _pickled_function
    _pickled_function = pickled_function
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    # Ctrl-C reaches every process of a terminal: the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a model prints must not get into the parent's output, which may be JSON.
    sys.stdout = sys.stderr


def _exit_with(parent: int) -> None:
    """End this process after its parent. Otherwise a loky worker would wait for tasks forever."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _execute(task: Any) -> Any:
    """Execute one task in a worker process."""
    global _function, _pickled_function
    try:
        if _function is None:
            _function = pickle.loads(_pickled_function)
            _pickled_function = b""
        return _function(task)
    except Exception as error:
        raise _picklable(error) from None


def _picklable(error: Exception) -> Exception:
    """Return the error, or one with the same text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
