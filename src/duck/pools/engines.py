"""In which processes the models of a pool are made: here, one group after another, or in several workers at once."""

import pickle
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch

from duck.errors import BadInput, DuckError
from duck.pools.files import Files
from duck.pools.members import Made, Workshop
from duck.pools.plan import Job, Plan
from duck.runtime import worker_command, worker_environment
from duck.types import Data

Group = tuple[Job, ...]
Start = Callable[[Group], bool]
"""Is asked before each group; False means no further ones."""


class Setup(NamedTuple):
    """What a worker needs to make models; the data are on the host."""

    plan: Plan
    data: Data
    files: Files
    device: str
    compiled: bool


def inline(groups: Sequence[Group], workshop: Workshop, start: Start) -> Iterator[Made]:
    """In this process. On the CPU one thread, as in a worker: sums over threads would differ with their number."""
    threads = torch.get_num_threads()
    if workshop.device.type == "cpu":
        torch.set_num_threads(1)
    try:
        for group in groups:
            if not start(group):
                return
            yield workshop(group)
    finally:
        torch.set_num_threads(threads)


def processes(groups: Sequence[Group], setup: Setup, start: Start, count: int) -> Iterator[Made]:
    """In `count` processes, each of which gets the next group when it is free. What one raises is raised here."""
    results: queue.Queue[Made | BaseException | None] = queue.Queue()
    waiting, lock = iter(groups), threading.Lock()
    crew = [_Worker(setup) for _ in range(count)]

    def following() -> Group | None:
        with lock:
            group = next(waiting, None)
            return group if group and start(group) else None

    def drive(worker: _Worker) -> None:
        try:
            while (group := following()) is not None:
                results.put(worker.ask(group))
            results.put(None)
        except BaseException as error:
            results.put(error)

    try:
        for worker in crew:
            threading.Thread(target=drive, args=(worker,), daemon=True).start()
        busy = count
        while busy:
            match results.get():
                case None:
                    busy -= 1
                case BaseException() as error:
                    raise error
                case made:
                    yield made
    finally:
        for worker in crew:
            worker.end()


class _Worker:
    """A Python process that reads groups and answers with what it noted of them, until its input ends."""

    def __init__(self, setup: Setup) -> None:
        try:
            self.setup: bytes | None = pickle.dumps(setup)
        except Exception as error:
            raise BadInput(
                f"{setup.data.name} cannot be handed to other processes ({error}): use --workers 1."
            ) from error
        command, environment = (
            worker_command("duck.pools.worker"),
            worker_environment(OMP_NUM_THREADS="1"),
        )
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def ask(self, group: Group) -> Made:
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write((self.setup or b"") + pickle.dumps(group))
            process.stdin.flush()
            self.setup = None
            answer: Any = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError) as error:
            raise DuckError(
                f"A worker ended in the middle of {group[0]} (exit code {process.wait()}): killed, or out of memory. "
                "The models that ended are kept: the same command goes on, with fewer --workers if memory is short."
            ) from error
        if isinstance(answer, BaseException):
            raise answer
        made: Made = answer
        return made

    def end(self) -> None:
        self.process.terminate()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                with suppress(OSError):  # what was still to be written to it
                    stream.close()
        self.process.wait()
