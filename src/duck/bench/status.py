"""What is done of the grids, what is missing, and what to run next."""

import shlex
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from duck.artifacts import ArtifactStore, Key
from duck.bench.estimates import Estimates
from duck.bench.formats import Format, align, pipe
from duck.bench.grids import (
    Attack,
    Block,
    Cell,
    Grid,
    cells,
    experiment,
    narrow,
    original_of,
    result_id,
    unknown_facts,
)
from duck.bench.groups import Group, find_groups, recipe_differences
from duck.bench.results import Result, Results
from duck.experiment import Experiment
from duck.json_text import to_json
from duck.methods.base import METHODS

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
class MissingCell:
    """A missing or failed cell with what it costs."""

    id: str
    grid: Grid
    cell: Cell
    seconds: float | None
    original: Experiment
    original_seconds: float | None
    """0 if the original is in the artifact store."""

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
class Resumable:
    """Work that can be stopped after any time and resumed: a search, or a pool."""

    status: Status
    priority: tuple[int, ...]
    command: Sequence[str]
    count: int
    unit: str

    @property
    def seconds(self) -> float:
        return 60 * (self.status.minutes or 0.0)

    def step(self, seconds: float) -> Step:
        """Return the command, limited to these seconds."""
        minutes = round(seconds / 60, 1)
        limit = ["--limit-minutes", f"{minutes:g}"] if seconds < self.seconds else []
        count = max(1, int(self.count * seconds / self.seconds))
        return Step(shlex.join([*self.command, *limit]), count, self.unit, minutes)


class Planner:
    """Compares grids with results. `models`: folder of the artifact store, with originals."""

    def __init__(self, results: Results, models: Path | None = None) -> None:
        self.results = results
        self.store = ArtifactStore(models)
        self.estimates = Estimates(results)

    def status(self, grids: Iterable[Grid]) -> list[Status]:
        """Return a row for each grid and data set, and for what else a grid needs."""
        return [row for grid in grids for work in self._work(grid) for row in work.status]

    def next_steps(
        self, grids: Iterable[Grid], minutes: float, flags: Sequence[str] = ()
    ) -> list[Step]:
        """Return the commands that fill the most important missing cells within these minutes.

        Cells whose time nobody has measured are left out, and so are attacks: these run on a CPU.
        A search of settings and a pool of shadow models can be built in parts: they use the rest.

        flags   added to each `duck bench`
        """
        left = 60 * minutes
        works = {grid.name: self._work(grid) for grid in grids}
        missing = {
            name: [cell for work in of_grid for cell in work.missing if not work.grid.attack]
            for name, of_grid in works.items()
        }
        waiting: list[MissingCell | Resumable] = []
        for name, of_grid in works.items():
            waiting += [*missing[name], *(part for work in of_grid for part in work.resumable)]
        chosen: dict[str, dict[Cell, float]] = {}
        part_steps: list[Step] = []
        planned: set[str] = set()
        for item in sorted(waiting, key=lambda item: item.priority):
            if isinstance(item, Resumable):
                seconds = min(item.seconds, left)
                if 0 < min(item.seconds, SHORTEST_PART) <= seconds:
                    left -= seconds
                    part_steps.append(item.step(seconds))
                continue
            original = 0.0 if item.original.id in planned else item.original_seconds
            # Grids share runs: a run that one grid needs is done for the other, too.
            if item.seconds is None or original is None or item.id in planned:
                continue
            if item.seconds + original <= left:
                left -= item.seconds + original
                planned |= {item.id, item.original.id}
                chosen.setdefault(item.grid.name, {})[item.cell] = item.seconds + original
        steps: list[Step] = []
        for name, seconds_by_cell in chosen.items():
            grid = works[name][0].grid
            steps += _steps(grid, seconds_by_cell, [one.cell for one in missing[name]], flags)
        return steps + part_steps

    def _work(self, grid: Grid) -> list["GridWork"]:
        """Compare a grid with the results, for each data set; a view of other grids has no work."""
        groups = [
            group for group in find_groups(grid, self.results) if group.cell.method in METHODS
        ]
        return [
            GridWork(self, grid, name, [g for g in groups if g.cell.block.dataset == name])
            for name in dict.fromkeys(block.dataset for block in grid.blocks)
        ]


class GridWork:
    """What is done and what is missing of a grid on one data set."""

    def __init__(self, planner: Planner, grid: Grid, dataset: str, groups: Sequence[Group]) -> None:
        self.results, self.estimates, self.store = planner.results, planner.estimates, planner.store
        self.grid, self.dataset, self.groups = grid, dataset, groups
        facts = self.results.facts(dataset)
        self.facts = facts[0] if facts else unknown_facts(dataset)
        # A result of any pool of shadow models counts. Whether the recipe of the pool is that of
        # the targets is counted apart.
        self.results_by_cell: dict[Cell, Result | None] = {}
        for group in groups:
            for cell in group.cells:
                known = group.results.get(cell) or self.results_by_cell.get(cell)
                self.results_by_cell[cell] = known
        self.missing = [
            self._missing_cell(cell)
            for cell, result in self.results_by_cell.items()
            if result is None or result.failed
        ]
        self.resumable: list[Resumable] = []
        block = next(block for block in grid.blocks if block.dataset == dataset)
        place = grid.rank, [one.dataset for one in grid.blocks].index(dataset)
        if block.trials:
            # After the most important runs, with the other methods.
            self.resumable.append(self._search(block, (1, 0, *place)))
        if grid.attack and grid.attack.needs_pool:
            self.resumable.append(self._pool(grid.attack, (0, 0, *place)))
        self.status = [self._runs(), *(part.status for part in self.resumable)]

    def _missing_cell(self, cell: Cell) -> MissingCell:
        target = experiment(self.grid, cell, self.facts)
        original = original_of(self.grid, cell, self.facts)
        # The code of a user's model is not imported for an estimate.
        is_stored = Key("originals", original.id) in self.store
        return MissingCell(
            result_id(target, self.grid.measurement),
            self.grid,
            cell,
            self.estimates.seconds(target, cell.block.scenario),
            original,
            0.0 if is_stored else self.estimates.seconds(original),
        )

    def _runs(self) -> Status:
        """Count the cells."""
        failed = sum(self.results_by_cell[one.cell] is not None for one in self.missing)
        originals = {one.original.id: one.original_seconds for one in self.missing}
        costs = [*(one.seconds for one in self.missing), *originals.values()]
        known = [seconds for seconds in costs if seconds is not None]
        return Status(
            self.grid.name,
            self.dataset,
            "runs",
            len(self.results_by_cell) - len(self.missing),
            len(self.missing) - failed,
            failed,
            None if self.missing and not any(known) else sum(known) / 60,
            sum(one.seconds is None for one in self.missing),
        )

    def _search(self, block: Block, priority: tuple[int, ...]) -> Resumable:
        """Count the trials: every method gets the same number of them on each data set."""
        first_cells = {
            group.cell.method: group.cell
            for group in reversed(self.groups)
            if group.cell.block == block
        }
        done = missing = unmeasured = 0
        seconds = 0.0
        measured_methods = []
        for method in self.grid.methods:
            # Original and Retrained have no settings to search.
            if method not in first_cells or not fields(METHODS[method]):  # type: ignore[arg-type]
                continue
            key = self.dataset, block.scenario, method
            tried = min(block.trials, self.results.trials[key])
            left = block.trials - tried
            done += tried
            missing += left
            each = self._trial_seconds(key, first_cells[method])
            if each is None:
                unmeasured += left
            elif left:
                seconds += left * each
                measured_methods.append(f"{block.scenario}:{method}")
        minutes = seconds / 60 if not missing or unmeasured < missing else None
        counts = done, missing, 0
        status = Status(self.grid.name, self.dataset, "search", *counts, minutes, unmeasured)
        words = ["python", "benchmarks/tune_rivals.py", "--data", self.dataset]
        words += ["--budget", str(block.trials), "--only", *measured_methods]
        return Resumable(status, priority, words, missing - unmeasured, "trials")

    def _trial_seconds(self, key: tuple[str, str, str], cell: Cell) -> float | None:
        """Return the seconds of a trial: as measured, or those of a run on each case of a trial."""
        measured = self.results.trial_seconds.get(key)
        if measured:
            return statistics.mean(measured)
        run = self.estimates.seconds(experiment(self.grid, cell, self.facts), cell.block.scenario)
        return None if run is None else TRIAL_CASES * run

    def _pool(self, attack: Attack, priority: tuple[int, ...]) -> Resumable:
        """Count the targets that were compared with shadow models of their own recipe."""
        results = [result for group in self.groups for result in group.done.values()]
        done = sum(not recipe_differences(result) for result in results)
        missing = max(0, len(self.results_by_cell) - done)
        minutes: float | None = 0.0
        if missing:
            original = original_of(self.grid, next(iter(self.results_by_cell)), self.facts)
            training = self.estimates.seconds(original)
            # A shadow model is trained on half of the data.
            minutes = None if training is None else attack.shadows * training / 2 / 60
        counts = done, missing, 0
        status = Status(self.grid.name, self.dataset, "matched pool", *counts, minutes)
        words = ["duck", "pool", "--data", self.dataset, "--model", self.grid.blocks[0].model]
        words += ["--models", str(attack.shadows), "--out", f"pools/{self.dataset}"]
        return Resumable(status, priority, words, attack.shadows, "models")


def _steps(
    grid: Grid, chosen: Mapping[Cell, float], missing: Collection[Cell], flags: Sequence[str]
) -> list[Step]:
    """Return the fewest commands that run the chosen cells and no other missing ones."""
    only = _only(grid, chosen) if len(chosen) < len(missing) else {}
    wanted = {key: frozenset(values) for key, values in only.items()}
    keys = next(iter(chosen)).keys
    differing = [key for key in keys if len({cell.keys[key][0] for cell in chosen}) > 1]
    # Without a differing key, blocks cannot be distinguished: the command runs all of them.
    if set(narrow(missing, wanted)) == set(chosen) or not differing:
        words = ",".join(f"{key}={value}" for key, values in only.items() for value in values)
        only_flag = ["--only", words] if words else []
        command = ["duck", "bench", grid.file or grid.name, *only_flag, *flags]
        minutes = round(sum(chosen.values()) / 60, 1)
        return [Step(shlex.join(command), len(chosen), "cells", minutes)]
    parts: dict[str, dict[Cell, float]] = {}
    for cell, seconds in chosen.items():
        parts.setdefault(cell.keys[differing[0]][0], {})[cell] = seconds
    return [step for part in parts.values() for step in _steps(grid, part, missing, flags)]


def _only(grid: Grid, chosen: Iterable[Cell]) -> dict[str, list[str]]:
    """Return the keys of --only in which the chosen cells are fewer than those of the grid."""
    wanted, every = list(chosen), cells(grid, {})
    only = {}
    for key in wanted[0].keys:
        values = list(dict.fromkeys(cell.keys[key][0] for cell in wanted))
        is_narrower = set(values) != {cell.keys[key][0] for cell in every}
        if is_narrower and (key, values) != ("removed", ["0"]):
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
        below = f"Estimated total: {total:,.0f} minutes on {device}, from measured runs."
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
