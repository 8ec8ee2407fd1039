"""Train what is missing of a pool; what is there is kept, and a kill loses only the models in work."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from duck.checks import check_settings
from duck.errors import BadInput
from duck.experiment import fingerprint
from duck.pools.engines import Group, Setup, inline, processes
from duck.pools.files import Files, Fingerprint, create
from duck.pools.members import About, Workshop
from duck.pools.plan import Job, Layout, Plan, layout, recipe_of
from duck.runtime import device_name, pick_device
from duck.training.loop import check_recipe
from duck.types import Data


class News(NamedTuple):
    """A model has just been written, or the work begins: what is done, what is left and how long that should take."""

    done: int
    left: int
    seconds_left: float | None
    """None as long as nothing can be said."""
    job: Job | None = None
    about: About | None = None


class Ending(NamedTuple):
    trained: int
    """By this call."""
    there: int
    """Before it."""
    left: int
    """Not begun, because the time would not have sufficed."""


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
    share: tuple[int, int] = (1, 1),
    limit: float | None = None,
    report: Callable[[News], None] = lambda _: None,
) -> Ending:
    """Train what is missing of a pool of so many models (and, for requests, half as many oracles).

    compiled   None: on CUDA
    together   so many models at once, their weights stacked
    workers    so many processes at once; `suitable_workers` says how many suit a device
    share      (2, 3): only the second of three equal parts, for several machines; merge them afterwards
    limit      seconds; a model that would not fit into them is not begun
    """
    begun, place = (
        time.monotonic(),
        device if isinstance(device, torch.device) else pick_device(device),
    )
    _check(plan, data, together, workers, share)
    compiled = place.type == "cuda" if compiled is None else compiled
    asked = plan.jobs(models)[share[0] - 1 :: share[1]]
    who = layout(plan, data)
    files = create(folder, fingerprint_of(plan, who), who)
    done = files.done() & set(asked)
    left = [job for job in asked if job not in done]
    groups = [group for group in _groups(asked, together) if not done.issuperset(group)]
    workers = min(workers, len(groups))
    clock = _Clock(files, done, device_name(place), workers)

    def start(group: Group) -> bool:
        return limit is None or time.monotonic() - begun + (clock.seconds(group) or 0.0) <= limit

    if workers > 1:
        making = processes(
            groups, Setup(plan, data.to("cpu"), files, str(place), compiled), start, workers
        )
    else:
        making = inline(
            groups, Workshop(plan, layout(plan, data.to(place)), files, place, compiled), start
        )
    report(News(len(done), len(left), clock.seconds_of_all(left)))
    for made in making:
        for job, about in made:
            left.remove(job)
            clock.note(job, about["seconds"])
            report(News(len(asked) - len(left), len(left), clock.seconds_of_all(left), job, about))
    return Ending(len(asked) - len(done) - len(left), len(done), len(left))


def suitable_workers(device: torch.device) -> int:
    """A process a core, which small nets do not fill alone; one on an accelerator."""
    return (
        len(os.sched_getaffinity(0))
        if device.type == "cpu" and hasattr(os, "sched_getaffinity")
        else 1
    )


def fingerprint_of(plan: Plan, who: Layout) -> Fingerprint:
    """Of data, recipe, model, method and design; two pools of one fingerprint can be merged."""
    return {**recipe_of(plan), "samples": who.digest()}


def _check(plan: Plan, data: Data, together: int, workers: int, share: tuple[int, int]) -> None:
    check_recipe(plan.experiment.training.recipe)
    check_settings(plan.experiment.method)
    if plan.experiment.training.fingerprint != fingerprint(data):
        raise BadInput(
            f"The data are not those of the plan: the fingerprint of {data.name} differs. Name them with --data, --root."
        )
    for name, count in (("together", together), ("workers", workers)):
        if count < 1:
            raise BadInput(f"--{name} must be at least 1, got {count}.")
    if not 1 <= share[0] <= share[1]:
        raise BadInput(f"A share is K of N with K from 1 to N, got {share[0]} of {share[1]}.")


def _groups(jobs: Sequence[Job], size: int) -> list[Group]:
    """Jobs of one kind in groups that do not depend on what is done or follows: a group gone on with gives the same models."""
    kinds = {part: [job for job in jobs if job.part == part] for part in ("model", "oracle")}
    groups = [
        tuple(kind[at : at + size]) for kind in kinds.values() for at in range(0, len(kind), size)
    ]
    order = {job: place for place, job in enumerate(jobs)}
    return sorted(groups, key=lambda group: order[group[-1]])


class _Clock:
    """How long models take: the median of those of their kind that were made on this device."""

    def __init__(self, files: Files, done: set[Job], device: str, workers: int) -> None:
        self.seen: dict[str, list[float]] = {"model": [], "oracle": []}
        self.workers = workers
        for job in sorted(done):
            about = files.about(job)
            if about["device"] == device:
                self.note(job, about["seconds"])

    def note(self, job: Job, seconds: float) -> None:
        self.seen[job.part].append(seconds)

    def seconds(self, jobs: Sequence[Job]) -> float | None:
        """One after another; None where nothing is known."""
        every = [*self.seen["model"], *self.seen["oracle"]]
        if not every:
            return None
        typical = {part: statistics.median(seen or every) for part, seen in self.seen.items()}
        return sum(typical[job.part] for job in jobs)

    def seconds_of_all(self, jobs: Sequence[Job]) -> float | None:
        """By all processes."""
        alone = self.seconds(jobs)
        return None if alone is None else alone / max(1, self.workers)
