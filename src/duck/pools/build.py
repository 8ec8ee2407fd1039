"""Train the missing models of a pool. An interrupted build loses only the models in training."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from duck.checks import check_settings
from duck.display import Display
from duck.engines import create_engine
from duck.errors import BadInput
from duck.experiment import fingerprint
from duck.pools.files import Files, Fingerprint, create
from duck.pools.members import Group, ModelInfo, Trainer
from duck.pools.plan import Job, Layout, Plan, make_layout, recipe_of
from duck.runtime import device_name, pick_device
from duck.training.loop import check_recipe
from duck.types import Data


class Progress(NamedTuple):
    """How far a build is: at its start, and after each model."""

    done: int
    left: int
    seconds_left: float | None
    """None where no model has been timed yet."""
    job: Job | None = None
    """The model that was just trained."""
    about: ModelInfo | None = None


class BuildCounts(NamedTuple):
    """How many models a build trained, found and left out."""

    trained: int
    """By this call."""
    there: int
    """Before it."""
    left: int
    """Not started: they did not fit into the time limit."""


def build_pool(
    folder: Path,
    plan: Plan,
    data: Data,
    models: int,
    *,
    device: str | torch.device = "auto",
    compiled: bool | None = None,
    together: int = 1,
    workers: int = 1,
    engine: str | None = None,
    address: str | None = None,
    gpus_per_worker: float = 0.0,
    share: tuple[int, int] = (1, 1),
    limit: float | None = None,
    report: Callable[[Progress], None] = lambda _: None,
) -> BuildCounts:
    """Train the missing models of a pool (and, for requests, half as many oracles).

    compiled   None: on CUDA
    together   models that are trained at once in a process, with stacked weights
    workers    models that are trained at the same time; see `suitable_workers`
    engine     a name of ENGINES; None: `processes` for several workers, else `inline`
    address    of a Ray cluster, and gpus_per_worker: see `create_engine`
    share      (2, 3): only the second of three equal parts, for several machines; merge them later
    limit      seconds; a model that would not fit into them is not started
    """
    started_at = time.monotonic()
    place = device if isinstance(device, torch.device) else pick_device(device)
    _check(plan, data, together, workers, share)
    jobs = plan.jobs(models)[share[0] - 1 :: share[1]]
    layout = make_layout(plan, data)
    files = create(folder, fingerprint_of(plan, layout), layout)
    done = files.done() & set(jobs)
    missing = [job for job in jobs if job not in done]
    groups = [group for group in _groups(jobs, together) if not done.issuperset(group)]
    workers = max(1, min(workers, len(groups)))
    runner = create_engine(engine, workers, address, gpus_per_worker)
    clock = _Clock(files, done, device_name(place), runner.workers)
    compiled = place.type == "cuda" if compiled is None else compiled
    trainer = Trainer(plan, data, files, place, compiled)

    def start(group: Group) -> bool:
        elapsed = time.monotonic() - started_at
        return limit is None or elapsed + (clock.seconds(group) or 0.0) <= limit

    report(Progress(len(done), len(missing), clock.remaining_seconds(missing)))
    for trained_models in runner(trainer, groups, start):
        for job, info in trained_models:
            missing.remove(job)
            clock.add(job, info["seconds"])
            seconds_left = clock.remaining_seconds(missing)
            report(Progress(len(jobs) - len(missing), len(missing), seconds_left, job, info))
    return BuildCounts(len(jobs) - len(done) - len(missing), len(done), len(missing))


def build_request_pool(
    folder: Path, plan: Plan, data: Data, models: int, device: torch.device, display: Display
) -> None:
    """Train the missing models of a pool for an audit, and show how far it is."""
    display.message(f"The pool of {models} models is made, or resumed, in {folder}.")
    with display.progress("pool") as progress:
        build_pool(
            folder,
            plan,
            data,
            models,
            device=device,
            workers=suitable_workers(device),
            report=lambda state: progress(state.done, state.done + state.left),
        )


def suitable_workers(device: torch.device) -> int:
    """Return one worker per core, which small models do not fill alone; one on an accelerator."""
    if device.type == "cpu" and hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return 1


def fingerprint_of(plan: Plan, layout: Layout) -> Fingerprint:
    """Return what identifies a pool. Two pools with the same fingerprint can be merged."""
    return {**recipe_of(plan), "samples": layout.digest()}


def _check(plan: Plan, data: Data, together: int, workers: int, share: tuple[int, int]) -> None:
    check_recipe(plan.experiment.training.recipe)
    check_settings(plan.experiment.method)
    if plan.experiment.training.fingerprint != fingerprint(data):
        raise BadInput(
            f"The data are not those of the plan: the fingerprint of {data.name} differs. "
            "Name them with --data, --root."
        )
    for name, count in (("together", together), ("workers", workers)):
        if count < 1:
            raise BadInput(f"--{name} must be at least 1, got {count}.")
    if not 1 <= share[0] <= share[1]:
        raise BadInput(f"A share is K of N with K from 1 to N, got {share[0]} of {share[1]}.")


def _groups(jobs: Sequence[Job], size: int) -> list[Group]:
    """Return groups of jobs of one kind, in the order of their last job.

    They do not depend on which models exist: a resumed group gives the same models.
    """
    groups: list[Group] = []
    for part in ("model", "oracle"):
        kind = [job for job in jobs if job.part == part]
        groups += [tuple(kind[start : start + size]) for start in range(0, len(kind), size)]
    order = {job: index for index, job in enumerate(jobs)}
    return sorted(groups, key=lambda group: order[group[-1]])


class _Clock:
    """Expected seconds of a model: the median of its kind on this device."""

    def __init__(self, files: Files, done: set[Job], device: str, workers: int) -> None:
        self.seconds_by_part: dict[str, list[float]] = {"model": [], "oracle": []}
        self.workers = workers
        for job in sorted(done):
            info = files.about(job)
            if info["device"] == device:
                self.add(job, info["seconds"])

    def add(self, job: Job, seconds: float) -> None:
        """Add the measured seconds of a model."""
        self.seconds_by_part[job.part].append(seconds)

    def seconds(self, jobs: Sequence[Job]) -> float | None:
        """Return the expected seconds of these jobs in one worker; None without measurements."""
        measured = [*self.seconds_by_part["model"], *self.seconds_by_part["oracle"]]
        if not measured:
            return None
        typical = {
            part: statistics.median(seconds or measured)
            for part, seconds in self.seconds_by_part.items()
        }
        return sum(typical[job.part] for job in jobs)

    def remaining_seconds(self, jobs: Sequence[Job]) -> float | None:
        """Return the expected seconds of these jobs in all workers."""
        seconds = self.seconds(jobs)
        return None if seconds is None else seconds / self.workers
