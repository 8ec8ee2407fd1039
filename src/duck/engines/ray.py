"""Executes tasks on a Ray cluster, or on a Ray instance that is started on this machine."""

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from duck.engines.base import ENGINES, Engine, Workers, check_workers
from duck.engines.processes import ONE_THREAD, SAFE_PATH, to_bytes
from duck.errors import BadInput, DuckError

# A task that is executed again after its worker died. A task that kills every worker, for example
# because memory is short, must end the command.
RETRIES = 3


@ENGINES.register("ray")
@dataclass(frozen=True)
class RayEngine(Engine):
    """Executes tasks in `workers` Ray actors, each with one CPU and a share of a GPU."""

    workers: int
    address: str | None = None
    """Address of a running cluster, such as "auto" or "ray://host:10001". None: start Ray here."""
    gpus_per_worker: float = 0.0

    def __post_init__(self) -> None:
        check_workers(self.workers)
        if not self.gpus_per_worker >= 0:
            raise BadInput(f"--gpus-per-worker must be 0 or more, got {self.gpus_per_worker}.")

    @contextmanager
    def open(self, function: Callable[[Any], Any], most_tasks: int) -> Iterator["_Actors"]:
        """Start actors. They end with the context: the cluster may keep running."""
        with self._cluster() as ray:
            # This reference keeps the function for actors that restart.
            stored = ray.put(to_bytes(function))
            actors = self._create_actors(ray, min(self.workers, most_tasks), stored)
            try:
                yield _Actors(ray, actors)
            finally:
                for actor in actors:
                    ray.kill(actor)

    @contextmanager
    def _cluster(self) -> Iterator[Any]:
        """Connect to the cluster and disconnect, unless the caller is connected already."""
        try:
            import ray
        except ImportError as error:
            raise BadInput(
                "The engine 'ray' needs Ray: pip install 'duck-unlearning[ray]'."
            ) from error
        if ray.is_initialized():
            yield ray
            return
        options: dict[str, Any] = {}
        if not self.address:
            options = {"num_cpus": self.workers, "include_dashboard": False}
        try:
            ray.init(self.address, log_to_driver=False, **options)
        except ConnectionError as error:
            raise BadInput(
                f"No Ray cluster answers at {self.address}. Start one with `ray start --head`, or "
                "leave out --address to start Ray on this machine."
            ) from error
        try:
            yield ray
        finally:
            ray.shutdown()

    def _create_actors(self, ray: Any, count: int, function: Any) -> list[Any]:
        """Start the actors. The function is stored once for all of them."""
        path = [folder for folder in sys.path if folder]
        actor_class = ray.remote(
            num_cpus=1,
            num_gpus=self.gpus_per_worker,
            max_restarts=RETRIES,
            max_task_retries=RETRIES,
            runtime_env={"env_vars": ONE_THREAD | SAFE_PATH},
        )(_Worker)
        return [actor_class.remote(function, path, os.getcwd()) for _ in range(count)]


class _Actors(Workers):
    """Ray actors, each of which executes one task at a time."""

    def __init__(self, ray: Any, actors: Sequence[Any]) -> None:
        super().__init__(len(actors))
        self.ray = ray
        self.free = list(actors)
        self.actor_of: dict[Any, Any] = {}

    def submit(self, task: Any) -> Any:
        """Let a free actor execute a task."""
        if not self.free:  # The caller has not waited for the tasks of an earlier sequence.
            self.wait(list(self.actor_of))
        actor = self.free.pop()
        handle = actor.execute.remote(task)
        self.actor_of[handle] = actor
        return handle

    def wait(self, handles: Sequence[Any]) -> Sequence[Any]:
        """Wait for a task to end and return all that have ended."""
        self.ray.wait(handles)
        finished, _ = self.ray.wait(handles, num_returns=len(handles), timeout=0)
        self.free += [self.actor_of.pop(handle) for handle in finished]
        return list(finished)

    def result(self, handle: Any) -> Any:
        """Return the result of a task, or raise its exception."""
        try:
            return self.ray.get(handle)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self.ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())
            raise DuckError(
                f"A Ray worker ended unexpectedly: {reason} The task was tried {RETRIES + 1} "
                "times. Finished results are kept. Rerun the same command to resume."
            ) from error


class _Worker:
    """A Ray actor that holds the function."""

    def __init__(self, function: bytes, path: list[str], folder: str) -> None:
        self.pickled_function = function
        self.path = path
        self.folder = folder
        self.function: Callable[[Any], Any] | None = None

    def execute(self, task: Any) -> Any:
        """Execute one task in the folder of the caller: relative paths mean the same."""
        if self.function is None:
            os.chdir(self.folder)
            sys.path[:] = self.path
            self.function = pickle.loads(self.pickled_function)
        return self.function(task)
