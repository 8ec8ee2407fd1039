"""What is done of the grids, what is missing, and what to run next."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path

from duck.artifacts import ArtifactStore, Key
from duck.bench.estimates import Estimates
from duck.bench.formats import Format, align, pipe
from duck.bench.grids import (
    Block,
    Cell,
    Facts,
    Grid,
    assumed,
    cells,
    experiment,
    narrow,
    original_of,
    result_id,
)
from duck.bench.results import Result, Results
from duck.bench.tables import find_line, recipe_differences
from duck.experiment import Experiment
from duck.json_text import to_json
from duck.methods.base import METHODS

MATCHED = "matched pool"
SEARCH = "search"
TRIAL_CASES = 2
"""Classes or seeds that a trial of a search runs on."""
SHORTEST_PART = 120.0
"""Seconds below which work that can be stopped is not started."""


@dataclass(frozen=True)
class Status:
    """How far the cells of a grid are on one data set."""

    grid: str
    dataset: str
    what: str
    """`runs`, `search` for settings tried on holdout data, or `matched pool`."""
    done: int
    missing: int
    failed: int
    minutes: float | None
    """Expected minutes for what is missing or failed; None: no similar run was measured."""
    unmeasured: int = 0
    """Of the missing cells, those whose time is not known and not in `minutes`."""


@dataclass(frozen=True)
class Step:
    """A command that fills missing cells."""

    command: str
    count: int
    unit: str
    """What is counted: cells, trials or models."""
    minutes: float


@dataclass(frozen=True)
class _Task:
    """A missing cell with what it costs."""

    id: str
    grid: Grid
    cell: Cell
    seconds: float | None
    original: Experiment
    original_seconds: float | None

    @property
    def priority(self) -> tuple[int, ...]:
        """Sort by the grid file: important methods, other methods, then further cases."""
        grid, cell = self.grid, self.cell
        case = cell.block.cases.index(cell.case)
        tier = 2
        if case < grid.priority.cases:
            tier = 0 if cell.method in grid.priority.methods else 1
        return tier, case, grid.rank, grid.blocks.index(cell.block)


@dataclass(frozen=True)
class _Part:
    """Work that can be stopped after any time and resumed by the same command."""

    priority: tuple[int, ...]
    command: str
    count: int
    unit: str
    seconds: float

    def step(self, seconds: float) -> Step:
        """Return the command, limited to these seconds."""
        minutes = round(seconds / 60, 1)
        limit = f" --limit-minutes {minutes:g}" if seconds < self.seconds else ""
        count = max(1, int(self.count * seconds / self.seconds))
        return Step(self.command + limit, count, self.unit, minutes)


class Planner:
    """Compares grids with results. `models`: folder of the artifact store, with originals."""

    def __init__(self, results: Results, models: Path | None = None) -> None:
        self.results = results
        self.store = ArtifactStore(models)
        self.estimates = Estimates(results)

    def status(self, grids: Iterable[Grid]) -> list[Status]:
        """Return a row for each grid and data set, and for what else a grid needs."""
        rows: list[Status] = []
        for grid in grids:
            for work in self._work(grid):
                rows += filter(None, (work.runs(), work.search(), work.matched_pool()))
        return rows

    def next_steps(self, grids: Iterable[Grid], minutes: float) -> list[Step]:
        """Return the commands that fill the most important missing cells within these minutes.

        Cells whose time nobody has measured are left out, and so are attacks: these run on a CPU.
        A search of settings and a pool of shadow models can be built in parts: they use the rest.
        """
        left = 60 * minutes
        chosen: dict[str, dict[Cell, float]] = {}
        paid: set[str] = set()
        partly: list[Step] = []
        missing: dict[str, list[Cell]] = {}
        every: list[_Task | _Part] = []
        parts: list[_Part] = []
        by_name = {grid.name: grid for grid in grids}
        for name, grid in by_name.items():
            works = self._work(grid)
            tasks = [task for work in works for task in work.tasks if not grid.attack]
            missing[name] = [task.cell for task in tasks]
            parts += [part for work in works for part in work.parts()]
            every += tasks
        for task in sorted([*every, *parts], key=lambda task: task.priority):
            if isinstance(task, _Part):
                seconds = min(task.seconds, left)
                if seconds >= min(task.seconds, SHORTEST_PART):
                    left -= seconds
                    partly.append(task.step(seconds))
                continue
            # Grids share runs: what one fills, the other finds done.
            known = task.original.id in paid or _is_stored(task.original, self.store)
            original = 0.0 if known else task.original_seconds
            if task.seconds is None or original is None or task.id in paid:
                continue
            seconds = task.seconds + original
            if seconds <= left:
                left -= seconds
                paid |= {task.id, task.original.id}
                chosen.setdefault(task.grid.name, {})[task.cell] = seconds
        found = [_steps(by_name[name], some, missing[name]) for name, some in chosen.items()]
        return [*(step for steps in found for step in steps), *partly]

    def _work(self, grid: Grid) -> list["_Work"]:
        """Return the work of a grid, for each data set; none for a view of other grids."""
        names = dict.fromkeys(block.dataset for block in grid.blocks)
        return [_Work(grid, name, self.results, self.estimates, self.store) for name in names]


@dataclass(frozen=True)
class _Work:
    """What is done and what is missing of a grid on one data set."""

    grid: Grid
    dataset: str
    results: Results
    estimates: Estimates
    store: ArtifactStore

    @cached_property
    def block(self) -> Block:
        return next(block for block in self.grid.blocks if block.dataset == self.dataset)

    @cached_property
    def sources(self) -> list[Facts]:
        return list(self.results.facts(self.dataset))

    @cached_property
    def facts(self) -> Facts:
        return self.sources[0] if self.sources else assumed(self.dataset)

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells that can be run."""
        every = cells(self.grid, {self.dataset: self.facts})
        of_data = [cell for cell in every if cell.block.dataset == self.dataset]
        return [cell for cell in of_data if cell.method in METHODS]

    @cached_property
    def tasks(self) -> list[_Task]:
        """The cells that are missing or failed."""
        lines = {cell: self._find(cell) for cell in self.cells}
        return [self._task(cell) for cell, line in lines.items() if line is None or line.failed]

    def _find(self, cell: Cell) -> Result | None:
        if self.grid.lira is None or self.grid.lira.pool:
            return find_line(self.grid, cell, self.sources, self.results)
        # Any pool counts here; whether it has the targets' recipe is counted apart.
        wanted = self._ids([cell])
        return next((line for line in self._lira_lines() if line.experiment.id in wanted), None)

    def _lira_lines(self) -> list[Result]:
        return [line for line in self.results.done.values() if line.measurement_name == "lira"]

    def _ids(self, some: Iterable[Cell]) -> set[str]:
        """Return the ids of the experiments of cells, on all sources of the data."""
        return {experiment(self.grid, cell, facts).id for cell in some for facts in self.sources}

    def _task(self, cell: Cell) -> _Task:
        target = experiment(self.grid, cell, self.facts)
        original = original_of(self.grid, cell, self.facts)
        seconds = self.estimates.run(target, cell.block.scenario)
        name = result_id(target, self.grid.measurement_settings)
        return _Task(name, self.grid, cell, seconds, original, self.estimates.training(original))

    def runs(self) -> Status:
        """Count the cells."""
        found = [self._find(task.cell) for task in self.tasks]
        failed = sum(line is not None for line in found)
        originals = {
            task.original.id: task.original_seconds
            for task in self.tasks
            if not _is_stored(task.original, self.store)
        }
        costs = [*(task.seconds for task in self.tasks), *originals.values()]
        known = [seconds for seconds in costs if seconds is not None]
        unmeasured = sum(task.seconds is None for task in self.tasks)
        minutes = None if self.tasks and not known else sum(known) / 60
        counts = len(self.cells) - len(self.tasks), len(self.tasks) - failed, failed
        return Status(self.grid.name, self.dataset, "runs", *counts, minutes, unmeasured)

    def search(self) -> Status | None:
        """Count the trials: every method gets the same number of them on each data set."""
        if not self.block.trials:
            return None
        tried = {method: self._trials(method) for method in self._searchable()}
        left = {method: self.block.trials - count for method, count in tried.items()}
        seconds = {method: self._trial_seconds(method) for method in left}
        missing = sum(left.values())
        unmeasured = sum(left[method] for method in left if seconds[method] is None)
        minutes = sum(left[method] * (seconds[method] or 0.0) for method in left) / 60
        known = None if missing and unmeasured == missing else minutes
        counts = sum(tried.values()), missing, 0
        return Status(self.grid.name, self.dataset, SEARCH, *counts, known, unmeasured)

    def _searchable(self) -> list[str]:
        """Return the methods that have settings to search."""
        known = [name for name in self.grid.methods if name in METHODS]
        able = [name for name in known if self.block.kind in METHODS[name].scenarios]
        return [name for name in able if fields(METHODS[name])]  # type: ignore[arg-type]

    def _trials(self, method: str) -> int:
        found = self.results.trials[self.dataset, self.block.scenario, method]
        return min(self.block.trials, found)

    def _trial_seconds(self, method: str) -> float | None:
        """Return the seconds of a trial: as measured, or those of a run on each case of a trial."""
        measured = self.estimates.trial(self.dataset, self.block.scenario, method)
        if measured is not None:
            return measured
        of_block = [cell for cell in self.cells if cell.block == self.block]
        cell = next(cell for cell in of_block if cell.method == method)
        target = experiment(self.grid, cell, self.facts)
        run = self.estimates.run(target, self.block.scenario)
        return None if run is None else TRIAL_CASES * run

    def matched_pool(self) -> Status | None:
        """Count the targets that were compared with shadow models of their own recipe."""
        if self.grid.lira is None:
            return None
        name, every = self.grid.name, self.cells
        if not every:
            return Status(name, self.dataset, MATCHED, 0, 0, 0, 0.0)
        targets = self._ids(every)
        matched = [line for line in self._lira_lines() if not recipe_differences(line)]
        done = sum(line.experiment.id in targets for line in matched)
        missing = max(0, len(every) - done)
        seconds = self.estimates.training(original_of(self.grid, every[0], self.facts), 0.5)
        minutes = None
        if seconds is not None:
            minutes = self.grid.lira.shadows * seconds / 60 if missing else 0.0
        return Status(name, self.dataset, MATCHED, done, missing, 0, minutes)

    def parts(self) -> list[_Part]:
        """Return what else a grid needs: searches of settings, and shadow models."""
        parts: list[_Part] = []
        search, pool = self.search(), self.matched_pool()
        if search and search.missing and search.minutes:
            left = [name for name in self._searchable() if self._trials(name) < self.block.trials]
            timed = [name for name in left if self._trial_seconds(name) is not None]
            studies = [f"{self.block.scenario}:{method}" for method in timed]
            words = ["--data", self.dataset, "--budget", str(self.block.trials)]
            words = ["python", "benchmarks/tune_rivals.py", *words, "--only", *studies]
            # After the most important runs, with the other methods.
            trials = search.missing - search.unmeasured
            parts.append(self._part(1, words, trials, "trials", search.minutes))
        if self.grid.lira and pool and pool.missing and pool.minutes:
            shadows = self.grid.lira.shadows
            model = self.grid.blocks[0].model
            words = ["--data", self.dataset, "--model", model, "--models", str(shadows)]
            words = ["duck", "pool", *words, "--out", f"pools/{self.dataset}"]
            parts.append(self._part(0, words, shadows, "models", pool.minutes))
        return parts

    def _part(
        self, tier: int, words: Sequence[str], count: int, unit: str, minutes: float
    ) -> _Part:
        names = list(dict.fromkeys(block.dataset for block in self.grid.blocks))
        priority = tier, 0, self.grid.rank, names.index(self.dataset)
        return _Part(priority, shlex.join(words), count, unit, 60 * minutes)


def _is_stored(original: Experiment, store: ArtifactStore) -> bool:
    # The code of a user's model is not imported for an estimate.
    return Key("originals", original.id) in store


def _steps(grid: Grid, chosen: Mapping[Cell, float], missing: Collection[Cell]) -> list[Step]:
    """Return the fewest commands that run the chosen cells and no other missing ones."""
    only = _only(grid, chosen) if len(chosen) < len(missing) else {}
    wanted = {key: frozenset(values) for key, values in only.items()}
    if set(narrow(missing, wanted)) == set(chosen):
        return _step(grid, only, chosen)
    differing = [key for key in SPLIT_BY if len({cell.keys[key][0] for cell in chosen}) > 1]
    if not differing:  # blocks that --only cannot tell apart: the command runs all of them
        return _step(grid, only, chosen)
    key = differing[0]
    parts: dict[str, dict[Cell, float]] = {}
    for cell, seconds in chosen.items():
        parts.setdefault(cell.keys[key][0], {})[cell] = seconds
    return [step for part in parts.values() for step in _steps(grid, part, missing)]


def _step(
    grid: Grid, only: Mapping[str, Sequence[str]], chosen: Mapping[Cell, float]
) -> list[Step]:
    words = ",".join(f"{key}={value}" for key, values in only.items() for value in values)
    command = ["duck", "bench", grid.file or grid.name, *(["--only", words] if words else [])]
    return [Step(shlex.join(command), len(chosen), "cells", round(sum(chosen.values()) / 60, 1))]


SPLIT_BY = (
    "dataset",
    "scenario",
    "model",
    "recipe",
    "removed",
    "case",
    "variant",
    "method",
    "preset",
)


def _only(grid: Grid, chosen: Iterable[Cell]) -> dict[str, list[str]]:
    """Return the keys of --only in which the chosen cells are fewer than those of the grid."""
    some, every = list(chosen), cells(grid, {})
    only = {}
    for key in SPLIT_BY:
        values = list(dict.fromkeys(cell.keys[key][0] for cell in some))
        if set(values) != {cell.keys[key][0] for cell in every} and (key, values) != (
            "removed",
            ["0"],
        ):
            only[key] = values
    return only


HEAD = ("grid", "data set", "what", "done", "missing", "failed", "minutes left")


def render_status(rows: Sequence[Status], form: Format, device: str | None = None) -> str:
    """Return the rows as a table. `device`: the one that the minutes are of."""
    if form == "json":
        return to_json([asdict(row) for row in rows])
    table = [list(HEAD), *(_shown(row) for row in rows)]
    total = sum(row.minutes or 0.0 for row in rows)
    unmeasured = sum(row.unmeasured for row in rows)
    below = "The time is not known: no run was measured."
    if not any(row.missing for row in rows):
        below = "Nothing is missing."
    elif total:
        below = f"Together about {total:,.0f} minutes on {device}, from measured runs."
        if unmeasured:
            below += f" For {unmeasured:,} cells or trials no similar one was measured."
    if form == "markdown":
        return f"{pipe(table, HEAD[:3])}\n\n{below}"
    return f"{align(table, HEAD[:3])}\n{below}"


def _shown(row: Status) -> list[str]:
    minutes = "not known" if row.minutes is None else f"{row.minutes:,.1f}"
    if row.unmeasured and row.minutes is not None:
        minutes += f" + {row.unmeasured} not known"
    counts = map(str, (row.done, row.missing, row.failed))
    return [row.grid, row.dataset, row.what, *counts, minutes]
