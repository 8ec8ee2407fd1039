"""Tables of results: mean and spread, the number of the paper, the gap to retrained models."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from duck.bench.columns import COLUMNS, Column, measures, spread
from duck.bench.grids import Bias, Block, Case, Cell, Grid, Only, built_in
from duck.bench.groups import Group, ResultsByCase, RowKey, find_groups, recipe_differences
from duck.bench.notes import left_out, never_run, run_notes, shadow_notes, unresolved_rates
from duck.bench.results import Result, Results
from duck.methods.base import METHODS
from duck.metrics import TOO_MUCH_LOST

ORACLE = "retrained"
PAPER = {"class": "cr", "samples": "hr"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """The rows of a grid with notes."""

    rows: list[Row]
    """One for each data set, scenario, method and preset, also for those that were never run."""
    visible_rows: list[Row]
    """The rows that are printed. A preset that was never run has a row only if its method has no
    other one; a note names the rest."""
    notes: list[str]
    """Failures, results that are left out, and facts about the numbers."""
    measurement: str | None = None
    """Name of the attack or study, or `time`."""

    @property
    def columns(self) -> dict[str, Column]:
        return COLUMNS[self.measurement]

    @property
    def several_pools(self) -> bool:
        """Whether LiRA's results compared with different shadow models."""
        return len({row["shadows"]["pool"] for row in self.rows if row.get("shadows")}) > 1


def make_table(grid: Grid, results: Results, only: Only) -> Table:
    """Return the table of a grid, in its order.

    Results that compared with different shadow models never share a row. A view of other grids has
    their rows with times.
    """
    if not grid.views:
        return _table(grid, results, only, grid.measurement_name)
    rows: list[Row] = []
    for name in grid.views:
        visible = _table(built_in()[name], results, only, "time").visible_rows
        rows += [row for row in visible if row["method"] != "original"]
    return Table(rows, rows, [], "time")


def _table(grid: Grid, results: Results, only: Only, measurement: str | None) -> Table:
    every = find_groups(grid, results)
    groups = _chosen(grid, every, only)
    rows = _rows(groups, every, measurement)
    budgets = {(block.dataset, block.scenario): block.trials for block in grid.blocks}
    if any(budgets.values()) and measurement != "time":
        for row in rows.values():
            row["trials"] = _trials(row, budgets[row["dataset"], row["scenario"]], results)
    visible_keys = _visible_keys(groups, every)
    visible = [group for group in groups if group.key in visible_keys]
    notes = [
        *shadow_notes(rows.values()),
        *(note for group in visible for note in run_notes(group, rows[group.key])),
        *never_run(group for group in groups if group.key not in visible_keys),
        *unresolved_rates(line for group in groups for line in group.results.values()),
        *left_out([group.narrow(only) for group in every], every, results, measurement),
    ]
    return Table(list(rows.values()), [rows[group.key] for group in visible], notes, measurement)


def _chosen(grid: Grid, every: Sequence[Group], only: Only) -> list[Group]:
    """Return the groups with the cells that `--only` selects, in the order of the table.

    Groups of a pool without results are left out if another pool has some.
    """
    groups = [part for part in (group.narrow(only) for group in every) if part.cells]
    pools = list(dict.fromkeys(group.pool for group in groups))
    used = [pool for pool in pools if any(group.lines for group in groups if group.pool == pool)]
    labels: list[str] = []
    for method in grid.methods:
        variants = [variant.name for variant in grid.variants if variant.method == method]
        labels += [method, *(f"{method}, {name}" for name in variants)]

    def order(group: Group) -> tuple[Any, ...]:
        cell = group.cell
        place = pools.index(group.pool), grid.blocks.index(cell.block), cell.removed or 0
        return *place, labels.index(cell.label), cell.preset

    return sorted([group for group in groups if group.pool in (used or pools[:1])], key=order)


def _visible_keys(groups: Sequence[Group], every: Sequence[Group]) -> set[RowKey]:
    """Return the rows that are printed: presets that ran, else the first preset of a method."""
    ran = {group.key for group in every if group.lines}
    first_presets = {group.key[:-1]: group.key for group in reversed(groups)}
    visible = {group.key for group in groups if group.key in ran}
    with_row = {key[:-1] for key in visible}
    return visible | {key for method, key in first_presets.items() if method not in with_row}


def _trials(row: Row, budget: int, results: Results) -> Row | None:
    """Count the settings of a method that were tried on holdout data, and those planned."""
    if row["method"] not in METHODS or not fields(METHODS[row["method"]]):  # type: ignore[arg-type]
        return None
    done = results.trials[row["dataset"], row["scenario"], row["method"]]
    return {"done": done, "of": budget}


def _rows(
    groups: Sequence[Group], every: Sequence[Group], measurement: str | None
) -> dict[RowKey, Row]:
    oracles = {group.place: group.results for group in every if group.cell.method == ORACLE}
    lines = [line for group in every for line in group.lines.values()]
    rows = {}
    for group in groups:
        row = _row(group, oracles.get(group.place, {}), measurement)
        if measurement == "lira":
            row["shadows"] = _shadows(group.pool, lines)
        rows[group.key] = row
    return rows


def _shadows(pool: str, lines: Iterable[Result]) -> Row | None:
    """Return the facts about a pool of shadow models; None if there are no results."""
    for line in lines:
        if line.shadows is not None and line.attack is not None and line.attack["pool"] == pool:
            return {**line.shadows, "pool": pool, "differs": recipe_differences(line)}
    return {"pool": pool} if pool else None


def _row(group: Group, oracle: ResultsByCase, measurement: str | None) -> Row:
    cell, found = group.cell, group.results
    block = cell.block
    values, reference = (
        {case: _values(line, oracle, block, measurement) for case, line in lines.items()}
        for lines in (found, oracle)
    )
    paper = _paper(cell, measurement)
    row: Row = {
        "dataset": block.dataset,
        "scenario": block.scenario,
        "model": block.model,
        "recipe": block.recipe_preset,
        "removed": cell.removed or None,
        "fraction": block.fraction if block.scenario == "samples" else None,
        "method": cell.method,
        "variant": cell.variant,
        "preset": cell.preset,
        "n": len(found),
        "of": len(group.cells),
    }
    for name in COLUMNS[measurement]:
        row[name] = {**spread(one[name] for one in values.values()), "paper": paper.get(name)}
    if measurement == "svm":
        row["chance"] = spread(line.scores["chance"] for line in found.values())["mean"]
    row["gap_to_retrained"] = _gap(values, reference) if cell.method != ORACLE else None
    timed = [line for line in found.values() if line.alone]
    if measurement != "time":
        row["seconds"] = _median(line.seconds for line in timed)
    row["prepare_seconds"] = _median(line.prepare_seconds for line in timed)
    errors = [line.error for line in group.lines.values() if line.error is not None]
    notes: list[str] = []
    if cell.method != "original":
        for line in found.values():
            notes += map(_without_numbers, line.notes)
    return {**row, "errors": dict(Counter(errors)), "notes": dict(Counter(notes))}


def _values(
    line: Result, oracle: ResultsByCase, block: Block, measurement: str | None
) -> dict[str, float | None]:
    """Return the values of the columns; `oracle` are the results of Retrained."""
    if measurement != "time":
        columns = measures(block.scenario, measurement)
        return {name: line.scores[score] for name, score in columns.items()}
    # The first retraining of a process may hold seconds of compilation: the median does not.
    timed = [one for one in oracle.values() if one.alone and one.device == line.device]
    retrained = _median(one.seconds for one in timed)
    seconds = line.seconds if line.alone else None
    ratio = retrained / seconds if retrained and seconds else None
    kept = line.scores[measures(block.scenario, None)["kept"]]
    return {"seconds": seconds, "speedup": ratio, "aus": line.scores["aus"], "kept": kept}


Values = Mapping[Case, Mapping[str, float | None]]


def _gap(found: Values, oracle: Values) -> dict[str, float | int | None] | None:
    """Return our values minus those of retrained models: means over the cases that both have."""
    both = [case for case in found if case in oracle]
    if not both:
        return None
    gaps: dict[str, float | int | None] = {}
    for name in found[both[0]]:
        pairs = [(found[case][name], oracle[case][name]) for case in both]
        gaps[name] = spread(
            ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None
        )["mean"]
    return {**gaps, "n": len(both)}


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None


def _without_numbers(note: str) -> str:
    """Return a note without the numbers of its run, so that equal notes can be counted."""
    return f"{TOO_MUCH_LOST}." if note.startswith(TOO_MUCH_LOST) else note


@cache
def _numbers() -> dict[str, list[Row]]:
    text = files("duck.bench").joinpath("paper_numbers.json").read_text(encoding="utf-8")
    numbers: dict[str, list[Row]] = json.loads(text)
    return numbers


def _paper(cell: Cell, measurement: str | None) -> dict[str, float | None]:
    """Return the means of the paper, with shares in 0..1; empty if it has no such cell.

    The paper removed a tenth of the samples or one class, and planted one kind of bias.
    """
    block = cell.block
    is_other_bias = block.bias not in (None, Bias())
    if block.random_classes or (cell.removed or 0) > 1 or block.fraction != 0.1 or is_other_bias:
        return {}
    kind = PAPER.get(block.scenario, "")
    tables = [kind, f"ablation-{kind}", f"architectures-{kind}"]
    if measurement is not None:
        tables = [measurement, f"{measurement}-{kind}"]
    wanted = {"dataset": block.dataset, "model": block.model}
    wanted |= {"method": cell.method, "variant": cell.variant}
    columns = measures(block.scenario, measurement)
    for numbers in [_numbers()[name] for name in tables if name in _numbers()]:
        for row in numbers:
            if wanted.items() <= {"variant": "", "model": "resnet18", **row}.items():
                return {
                    name: row[score]["mean"] / COLUMNS[measurement][name].factor
                    for name, score in columns.items()
                    if row.get(score)
                }
    return {}
