"""Tables of results: mean and spread, the number of the paper, the gap to retrained models."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

from duck.bench.columns import COLUMNS, measures, spread
from duck.bench.grids import Bias, Block, Case, Cell, Grid, Only, built_in
from duck.bench.groups import Group, ResultsByCase, RowKey, find_groups, recipe_differences
from duck.bench.notes import left_out, never_run, run_notes, shadow_notes, unresolved_rates
from duck.bench.results import Result, Results
from duck.bench.table_rows import Table, TableRow, Trials, median
from duck.files import package_text
from duck.methods.base import METHODS

RETRAINED = "retrained"
PAPER = {"class": "cr", "samples": "hr"}


def make_table(grid: Grid, results: Results, only: Only) -> Table:
    """Return the table of a grid, in its order.

    Results that compared with different shadow models never share a row. A view of other grids has
    their rows with times.
    """
    if not grid.views:
        return _table(grid, results, only, grid.measurement_name)
    rows: list[TableRow] = []
    for name in grid.views:
        visible = _table(built_in()[name], results, only, "time").visible_rows
        rows += [row for row in visible if row.group.cell.method != "original"]
    return Table(rows, rows, [], "time")


def _table(grid: Grid, results: Results, only: Only, measurement: str | None) -> Table:
    every = find_groups(grid, results)
    groups = _chosen(grid, every, only)
    rows = _rows(groups, every, measurement, results)
    has_search = measurement != "time" and any(block.trials for block in grid.blocks)
    visible_keys = _visible_keys(groups, every)
    visible_rows = [rows[group.key] for group in groups if group.key in visible_keys]
    notes = [
        *shadow_notes(rows.values()),
        *(note for row in visible_rows for note in run_notes(row)),
        *never_run(group for group in groups if group.key not in visible_keys),
        *unresolved_rates(result for group in groups for result in group.done.values()),
        *left_out([group.narrow(only) for group in every], every, results, grid),
    ]
    return Table(list(rows.values()), visible_rows, notes, measurement, has_search)


def _chosen(grid: Grid, every: Sequence[Group], only: Only) -> list[Group]:
    """Return the groups with the cells that `--only` selects, in the order of the table.

    Groups of a pool without results are left out if another pool has some.
    """
    groups = [part for part in (group.narrow(only) for group in every) if part.cells]
    pools = list(dict.fromkeys(group.pool for group in groups))
    used = [pool for pool in pools if any(group.results for group in groups if group.pool == pool)]
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
    ran = {group.key for group in every if group.results}
    first_presets = {group.key[:-1]: group.key for group in reversed(groups)}
    visible = {group.key for group in groups if group.key in ran}
    with_row = {key[:-1] for key in visible}
    return visible | {key for method, key in first_presets.items() if method not in with_row}


def _trials(cell: Cell, results: Results) -> Trials | None:
    """Count the trials of a method; None if it has no settings."""
    if cell.method not in METHODS or not fields(METHODS[cell.method]):  # type: ignore[arg-type]
        return None
    block = cell.block
    done = results.trials[block.dataset, block.scenario, cell.method]
    return Trials(done, block.trials)


def _rows(
    groups: Sequence[Group], every: Sequence[Group], measurement: str | None, results: Results
) -> dict[RowKey, TableRow]:
    retrained = {group.place: group.done for group in every if group.cell.method == RETRAINED}
    attacked = [one for group in every for one in group.results.values() if one.shadows]
    rows = {}
    for group in groups:
        row = _row(group, retrained.get(group.place, {}), measurement, results)
        same_pool = (one for one in attacked if one.attack and one.attack.pool == group.pool)
        compared = next(same_pool, None)
        if compared is not None:
            differs = recipe_differences(compared)
            row = replace(row, shadows=compared.shadows, differs=differs)
        rows[group.key] = row
    return rows


def _row(
    group: Group, retrained: ResultsByCase, measurement: str | None, results: Results
) -> TableRow:
    block = group.cell.block
    values, reference = (
        {case: _values(one, retrained, block, measurement) for case, one in found.items()}
        for found in (group.done, retrained)
    )
    paper = _paper(group.cell, measurement)
    spreads = {
        name: spread((one[name] for one in values.values()), paper.get(name))
        for name in COLUMNS[measurement]
    }
    gaps = _gaps(values, reference) if group.cell.method != RETRAINED else None
    return TableRow(group, spreads, gaps, _trials(group.cell, results))


def _values(
    result: Result, retrained: ResultsByCase, block: Block, measurement: str | None
) -> dict[str, float | None]:
    """Return the values of the columns; `retrained` are the results of Retrained."""
    if measurement != "time":
        columns = measures(block.scenario, measurement)
        return {name: result.scores[score] for name, score in columns.items()}
    # The first retraining of a process may hold seconds of compilation: the median does not.
    timed = [one for one in retrained.values() if one.alone and one.device == result.device]
    slow = median(one.seconds for one in timed)
    seconds = result.seconds if result.alone else None
    ratio = slow / seconds if slow and seconds else None
    kept = result.scores[measures(block.scenario, None)["kept"]]
    return {"seconds": seconds, "speedup": ratio, "aus": result.scores["aus"], "kept": kept}


Values = Mapping[Case, Mapping[str, float | None]]


def _gaps(found: Values, retrained: Values) -> dict[str, float | None] | None:
    """Return our values minus those of retrained models: means over the cases that both have."""
    both = [case for case in found if case in retrained]
    if not both:
        return None
    gaps: dict[str, float | None] = {}
    for name in found[both[0]]:
        pairs = [(found[case][name], retrained[case][name]) for case in both]
        gaps[name] = spread(
            ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None
        ).mean
    return {**gaps, "n": len(both)}


@cache
def _numbers() -> dict[str, list[dict[str, Any]]]:
    numbers: dict[str, list[dict[str, Any]]]
    numbers = json.loads(package_text("duck.bench", "paper_numbers.json"))
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
