"""Functions that worker processes can import."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple


def square(number: int) -> int:
    return number * number


def thread_settings(_: object) -> tuple[str | None, int]:
    import torch

    return os.environ.get("OMP_NUM_THREADS"), torch.get_num_threads()


def process_id(_: object) -> int:
    time.sleep(0.2)
    return os.getpid()


def print_number(number: int) -> int:
    print("printed by a task", number)
    return number


def search_path(_: object) -> list[str]:
    return sys.path


class WorkerFacts(NamedTuple):
    process: int
    threads: tuple[str | None, int]
    path: list[str]
    folder: str


def describe_worker(_: object) -> WorkerFacts:
    return WorkerFacts(process_id(None), thread_settings(None), sys.path, os.getcwd())


class Unpicklable(Exception):
    """An error that cannot be rebuilt from its arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def fail(number: int) -> int:
    if number == 1:
        raise Unpicklable("two", "words")
    if number == 2:
        raise ZeroDivisionError("number 2")
    return number


def die(number: int) -> int:
    """Return quickly, or kill this process after the others have returned."""
    if number == 5:
        time.sleep(1.5)
        os.kill(os.getpid(), signal.SIGKILL)
    # The first ends alone; the others end while its consumer is busy.
    time.sleep(0.5 if number else 0.0)
    return number


@dataclass(frozen=True)
class WriteSlowly:
    """Writes a file named after the task; later tasks take long."""

    folder: Path

    def __call__(self, number: int) -> int:
        if number >= 2:
            time.sleep(60)
        (self.folder / str(number)).touch()
        return number


@dataclass(frozen=True)
class Locked:
    """Holds what cannot be pickled."""

    lock: Any

    def __call__(self, number: int) -> int:
        return number


@dataclass(frozen=True)
class KillWorkers:
    """Kills its process on each of the first executions of task 1, then squares as usual."""

    folder: Path
    kills: int

    def __call__(self, number: int) -> int:
        if number == 1:
            attempt = len(list(self.folder.iterdir()))
            (self.folder / str(attempt)).touch()
            if attempt < self.kills:
                os.kill(os.getpid(), signal.SIGKILL)
        return number * number
