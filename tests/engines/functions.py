"""Functions that worker processes can import."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
