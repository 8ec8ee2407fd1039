"""What is done of the grids, what is missing, and what to run next."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

from duck.artifacts import ArtifactStore, Key
from duck.bench.estimates import Estimates
from duck.bench.formats import align, pipe
from duck.bench.grids import (
    Attack,
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
"""Seconds below which work that is made in parts is not begun."""


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
        self._known: dict[str, list[Facts]] = {}

    def status(self, grids: Iterable[Grid]) -> list[Status]:
        """Return a row for each grid and data set, and for what else a grid needs."""
        rows: list[Status] = []
        for grid in grids:
            if grid.views:
                continue
            for dataset in dict.fromkeys(block.dataset for block in grid.blocks):
                rows.append(self._runs(grid, dataset))
                if _block_of(grid, dataset).trials:
                    rows.append(self._search(grid, dataset))
                if grid.attack and grid.attack.name == "lira":
                    rows.append(self._matched_pool(grid, grid.attack, dataset))
        return rows

    def next_steps(self, grids: Iterable[Grid], minutes: float) -> list[Step]:
        """Return the commands that fill the most important missing cells within these minutes.

        Cells whose time nobody has measured are left out, and so are attacks: these run on a CPU.
        A search of settings and a pool of shadow models can be built in parts: they use the rest.
        """
        left = 60 * minutes
        chosen: dict[str, dict[Cell, float]] = {}
        paid: set[str] = set()
        known_grids = {grid.name: grid for grid in grids if not grid.views}
        run_only = {name: grid for name, grid in known_grids.items() if not grid.attack}
        tasks = [task for grid in run_only.values() for task in self._tasks(grid)]
        parts = [part for grid in known_grids.values() for part in self._parts(grid)]
        partly: list[Step] = []
        every: list[_Task | _Part] = [*tasks, *parts]
        for task in sorted(every, key=lambda task: task.priority):
            if isinstance(task, _Part):
                seconds = min(task.seconds, left)
                if seconds >= min(task.seconds, SHORTEST_PART):
                    left -= seconds
                    partly.append(task.step(seconds))
                continue
            # Grids share runs: what one fills, the other finds done.
            known = task.original.id in paid or self._is_there(task.original)
            is_measured = task.seconds is not None and (known or task.original_seconds is not None)
            if task.seconds is None or not is_measured or task.id in paid:
                continue
            seconds = task.seconds + (0.0 if known else task.original_seconds or 0.0)
            if seconds <= left:
                left -= seconds
                paid |= {task.id, task.original.id}
                chosen.setdefault(task.grid.name, {})[task.cell] = seconds
        missing = {name: [task.cell for task in tasks if task.grid.name == name] for name in chosen}
        found = [_steps(run_only[name], some, missing[name]) for name, some in chosen.items()]
        return [*(step for steps in found for step in steps), *partly]

    def _parts(self, grid: Grid) -> list["_Part"]:
        """Return what else a grid needs: searches of settings, and shadow models."""
        parts: list[_Part] = []
        for dataset in dict.fromkeys(block.dataset for block in grid.blocks):
            place = grid.rank, len(parts)
            block = _block_of(grid, dataset)
            if block.trials and (search := self._search(grid, dataset)).missing and search.minutes:
                studies = [
                    f"{scenario}:{method}" for scenario, method in self._unsearched(grid, dataset)
                ]
                words = ["--data", dataset, "--budget", str(block.trials), "--only", *studies]
                command = shlex.join(["python", "benchmarks/tune_rivals.py", *words])
                # After the most important runs, with the other methods.
                trials = search.missing - search.unmeasured
                parts.append(_Part((1, 0, *place), command, trials, "trials", 60 * search.minutes))
            if grid.attack and grid.attack.name == "lira":
                pool = self._matched_pool(grid, grid.attack, dataset)
                model = grid.blocks[0].model
                words = ["--data", dataset, "--model", model, "--models", str(grid.attack.shadows)]
                command = shlex.join(["duck", "pool", *words, "--out", f"pools/{dataset}"])
                if pool.missing and pool.minutes:
                    seconds = 60 * pool.minutes
                    parts.append(
                        _Part((0, 0, *place), command, grid.attack.shadows, "models", seconds)
                    )
        return parts

    def _unsearched(self, grid: Grid, dataset: str) -> list[tuple[str, str]]:
        """Return the methods that need more trials, if the time of a trial is known."""
        block = _block_of(grid, dataset)
        return [
            (block.scenario, method)
            for method in _searchable(grid, block)
            if self.results.trials[dataset, block.scenario, method] < block.trials
            and self._trial_seconds(grid, block, method) is not None
        ]

    def _runs(self, grid: Grid, dataset: str) -> Status:
        lines = self._lines(grid, dataset)
        failed = sum(line is not None and line.failed for line in lines.values())
        missing = [cell for cell, line in lines.items() if line is None or line.failed]
        tasks = [self._task(grid, cell) for cell in missing]
        originals = {
            task.original.id: task.original_seconds
            for task in tasks
            if not self._is_there(task.original)
        }
        costs = [*(task.seconds for task in tasks), *(originals.values())]
        known = [seconds for seconds in costs if seconds is not None]
        unmeasured = sum(task.seconds is None for task in tasks)
        minutes = None if tasks and not known else sum(known) / 60
        counts = len(lines) - len(missing), len(missing) - failed, failed
        return Status(grid.name, dataset, "runs", *counts, minutes, unmeasured)

    def _search(self, grid: Grid, dataset: str) -> Status:
        """Every method gets the same number of trials on each data set."""
        done = missing = unmeasured = 0
        seconds = 0.0
        block = _block_of(grid, dataset)
        scenario = block.scenario
        for method in _searchable(grid, block):
            tried = min(block.trials, self.results.trials[dataset, scenario, method])
            expected = self._trial_seconds(grid, block, method)
            done += tried
            missing += block.trials - tried
            unmeasured += block.trials - tried if expected is None else 0
            seconds += (block.trials - tried) * (expected or 0.0)
        minutes = None if missing and unmeasured == missing else seconds / 60
        return Status(grid.name, dataset, SEARCH, done, missing, 0, minutes, unmeasured)

    def _trial_seconds(self, grid: Grid, block: Block, method: str) -> float | None:
        """Return the seconds of a trial: as measured, or those of a run on each case of a trial."""
        measured = self.estimates.trial(block.dataset, block.scenario, method)
        if measured is not None:
            return measured
        cell = next(
            cell
            for cell in cells(grid, self._facts(grid))
            if cell.block == block and cell.method == method
        )
        run = self.estimates.run(experiment(grid, cell, self._facts_of(cell)), block.scenario)
        return None if run is None else TRIAL_CASES * run

    def _matched_pool(self, grid: Grid, attack: Attack, dataset: str) -> Status:
        """Count the targets that were compared with shadow models of their own recipe."""
        some = [cell for cell in cells(grid, self._facts(grid)) if cell.block.dataset == dataset]
        every = [cell for cell in some if cell.method in METHODS]
        if not every:
            return Status(grid.name, dataset, MATCHED, 0, 0, 0, 0.0)
        targets = {
            experiment(grid, cell, facts).id for cell in every for facts in self._sources(cell)
        }
        done = sum(
            line.measurement_name == "lira"
            and not recipe_differences(line)
            and line.experiment.id in targets
            for line in self.results.done.values()
        )
        missing = max(0, len(every) - done)
        seconds = self.estimates.training(
            original_of(grid, every[0], self._facts_of(every[0])), 0.5
        )
        minutes = None if seconds is None else (attack.shadows * seconds / 60 if missing else 0.0)
        return Status(grid.name, dataset, MATCHED, done, missing, 0, minutes)

    def _tasks(self, grid: Grid) -> list[_Task]:
        return [
            self._task(grid, cell)
            for dataset in dict.fromkeys(block.dataset for block in grid.blocks)
            for cell, line in self._lines(grid, dataset).items()
            if line is None or line.failed
        ]

    def _task(self, grid: Grid, cell: Cell) -> _Task:
        made = experiment(grid, cell, self._facts_of(cell))
        original = original_of(grid, cell, self._facts_of(cell))
        seconds = self.estimates.run(made, cell.block.scenario)
        settings = None if grid.study is None else grid.study.settings
        cost = self.estimates.training(original)
        return _Task(result_id(made, settings), grid, cell, seconds, original, cost)

    def _is_there(self, original: Experiment) -> bool:
        # The code of a user's model is not imported for an estimate.
        return Key("originals", original.id) in self.store

    def _lines(self, grid: Grid, dataset: str) -> dict[Cell, Result | None]:
        """Return the cells of a data set that can be run, and their results."""
        every = cells(grid, self._facts(grid))
        return {
            cell: self._found(grid, cell)
            for cell in every
            if cell.block.dataset == dataset and cell.method in METHODS
        }

    def _found(self, grid: Grid, cell: Cell) -> Result | None:
        attack = grid.attack
        if attack is None or attack.name != "lira" or attack.pool:
            return find_line(grid, cell, self._sources(cell), self.results)
        # Any pool counts here; whether it has the targets' recipe is counted apart.
        wanted = {experiment(grid, cell, facts).id for facts in self._sources(cell)}
        lines = self.results.done.values()
        of_lira = [line for line in lines if line.measurement_name == "lira"]
        return next((line for line in of_lira if line.experiment.id in wanted), None)

    def _sources(self, cell: Cell) -> list[Facts]:
        name = cell.block.dataset
        if name not in self._known:
            self._known[name] = list(self.results.facts(name))
        return self._known[name]

    def _facts_of(self, cell: Cell) -> Facts:
        return next(iter(self._sources(cell)), assumed(cell.block.dataset))

    def _facts(self, grid: Grid) -> dict[str, Facts]:
        names = dict.fromkeys(block.dataset for block in grid.blocks)
        return {name: facts for name in names for facts in [*self.results.facts(name)][:1]}


def _block_of(grid: Grid, dataset: str) -> Block:
    return next(block for block in grid.blocks if block.dataset == dataset)


def _searchable(grid: Grid, block: Block) -> list[str]:
    """Return the methods of a block that have settings to search."""
    known = [
        name for name in grid.methods if name in METHODS and block.kind in METHODS[name].scenarios
    ]
    return [name for name in known if fields(METHODS[name])]  # type: ignore[arg-type]


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


StatusFormat = Literal["text", "markdown", "json"]
HEAD = ("grid", "data set", "what", "done", "missing", "failed", "minutes left")


def render_status(rows: Sequence[Status], form: StatusFormat, device: str | None = None) -> str:
    """Return the rows as a table. `device`: the one that the minutes are of."""
    if form == "json":
        return to_json([asdict(row) for row in rows])
    table = [list(HEAD), *(_shown(row) for row in rows)]
    total = sum(row.minutes or 0.0 for row in rows)
    missing, unmeasured = (
        sum(getattr(row, name) for row in rows) for name in ("missing", "unmeasured")
    )
    below = (
        f"Together about {total:,.0f} minutes on {device}, from measured runs."
        if total
        else "The time is not known: no run was measured."
    )
    if not missing:
        below = "Nothing is missing."
    elif total and unmeasured:
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
