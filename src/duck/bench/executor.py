"""Plan the missing runs of a grid and execute them."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duck.bench.estimates import Estimates
from duck.bench.grids import Facts, Grid, Only, cells, experiment, narrow, original_of
from duck.bench.results import Result, Results
from duck.bench.runner import Job
from duck.display import JobProgress
from duck.engines import INLINE, Engine
from duck.experiment import Experiment
from duck.methods.base import METHODS
from duck.types import Data


@dataclass(frozen=True)
class Plan:
    """The runs of a grid that can be executed here."""

    jobs: list[Job]
    done: int
    """Cells that have a result."""
    skipped: set[str]
    """Methods that are not installed."""


def plan(
    grid: Grid,
    facts: Mapping[str, Facts],
    results: Results,
    only: Only,
    is_stored: Callable[[Experiment], bool] = lambda _: False,
) -> Plan:
    """Return the missing runs: an original before the runs that need it, a model before its attack.

    Cells whose data are missing are skipped.

    is_stored   whether the outputs or weights of a model are stored: an attack needs no new one
    """
    jobs: dict[str, Job] = {}
    skipped: set[str] = set()
    finished = results.done
    done = set()
    for cell in narrow(cells(grid, facts), only):
        name = cell.block.dataset
        if name not in facts:
            continue
        if cell.method not in METHODS:
            skipped.add(cell.method)
            continue
        wanted = experiment(grid, cell, facts[name])
        original = original_of(grid, cell, facts[name])
        job = Job(name, wanted, cell, grid.measurement)
        if job.id in finished:
            done.add(job.id)
            continue
        # What a job needs has a result of its own, and is counted and timed separately.
        needed = [Job(name, original)]
        if grid.measurement and cell.block.bias is None:
            needed.append(Job(name, wanted, cell))
        if grid.measurement and is_stored(wanted):
            needed = []
        for run in (*needed, job):
            if run.id not in finished:
                jobs.setdefault(run.id, run)
    return Plan(list(jobs.values()), len(done), skipped)


def check_requests(jobs: Iterable[Job], data: Mapping[str, Data]) -> None:
    """Raise an error for a request that the data cannot fulfil, before anything is trained."""
    by_request = {(job.dataset, str(job.experiment.request)): job for job in jobs}
    for job in by_request.values():
        request = job.experiment.request
        if request is not None:
            request(data[job.dataset], job.experiment.seed, job.experiment.protocol)


class RunCounts(NamedTuple):
    """How many runs of a grid ended, failed and were left out."""

    ran: int
    failed: int
    left: int
    """Not started: they did not fit into the time limit."""


def execute(
    jobs: Sequence[Job],
    work: Callable[[Job], Result],
    results: Results,
    grid: str,
    *,
    device: str,
    engine: Engine = INLINE,
    limit: float | None = None,
    report: Callable[[JobProgress[Result]], None] = lambda _: None,
) -> RunCounts:
    """Run the jobs and append each result as it ends.

    limit   seconds; a job that would not fit is not started, nor any after it
    """
    deadline = None if limit is None else time.monotonic() + limit
    estimates = Estimates(results, device)
    left = {job.id: job for job in jobs}
    finished: list[Result] = []
    in_time = True

    def expected(job: Job) -> float | None:
        return estimates.seconds(job.experiment, job.scenario, job.measurement)

    def progress(job: Job, result: Result | None = None) -> None:
        seconds_left = estimates.total(map(expected, left.values()))
        report(JobProgress(len(finished), len(left), seconds_left, job, result))

    def start(job: Job) -> bool:
        nonlocal in_time
        in_time = deadline is None or time.monotonic() + (expected(job) or 0.0) < deadline
        if in_time:
            progress(job)
        return in_time

    for stage in _stages(jobs) if engine.workers > 1 else [jobs]:
        for result in engine(work, stage, start) if in_time else ():
            results.append(grid, result)
            finished.append(result)
            progress(left.pop(result.id), result)
    return RunCounts(len(finished), sum(result.failed for result in finished), len(left))


def _stages(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return originals, unlearned models, then attacks and studies.

    Each stage ends before the next one begins: no worker trains what another one is training.
    """
    originals = [job for job in jobs if job.cell is None]
    unlearned = [job for job in jobs if job.cell is not None and job.measurement is None]
    measured = [job for job in jobs if job.measurement is not None]
    return [stage for stage in (originals, unlearned, measured) if stage]
