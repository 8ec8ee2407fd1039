"""Tables of results: mean and spread, the number of the paper, the gap to retrained models."""

import json
import statistics
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from duck.bench.columns import COLUMNS, Column, measures
from duck.bench.grids import (
    Attack,
    Bias,
    Block,
    Case,
    Cell,
    Facts,
    Grid,
    Only,
    built_in,
    cells,
    experiment,
    narrow,
    result_id,
)
from duck.bench.notes import left_out, never_run, run_notes, shadow_notes, unresolved_rates
from duck.bench.results import Result, Results
from duck.experiment import to_dict
from duck.json_text import to_json
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
    shown: list[Row]
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


class Place(NamedTuple):
    """What identifies a row: the number of its block, the classes removed, method and preset."""

    block: int
    removed: int
    label: str
    """The method with its variant."""
    preset: str


@dataclass
class Group:
    """The cells of a row, and their results by case."""

    cell: Cell
    """The first of them."""
    cases: list[Case] = field(default_factory=list)
    lines: dict[Case, Result] = field(default_factory=dict)

    @property
    def results(self) -> dict[Case, Result]:
        return {case: line for case, line in self.lines.items() if not line.failed}


class Part(NamedTuple):
    """The rows of one attack, and all its results, also those of cells that are not shown."""

    rows: dict[Place, Row]
    shown: list[Place]
    groups: dict[Place, Group]
    lines: list[Result]


def make_table(grid: Grid, results: Results, only: Only) -> Table:
    """Return the table of a grid, in its order.

    Results that compared with different shadow models never share a row.
    """
    if grid.views:
        return _view(grid, results, only)
    name = grid.measurement_name
    every = [_part(one, results, only, name) for one in grids_by_pool(grid, results)]
    parts = [part for part in every if any(group.lines for group in part.groups.values())]
    parts = parts or every[:1]
    several = len(parts) > 1
    rows = [row for part in parts for row in part.rows.values()]
    budgets = {(block.dataset, block.scenario): block.trials for block in grid.blocks}
    if any(budgets.values()):
        for row in rows:
            row["trials"] = _trials(row, budgets[row["dataset"], row["scenario"]], results)
    shown = [part.rows[place] for part in parts for place in part.shown]
    hidden = [row for part in parts for place, row in part.rows.items() if place not in part.shown]
    used: list[Result] = []
    for part in parts:
        for group in part.groups.values():
            used += group.results.values()
    notes = [
        *shadow_notes(rows),
        *(note for row in shown for note in run_notes(row, several)),
        *never_run(hidden, several),
        *unresolved_rates(used),
        *left_out(
            narrow(cells(grid, results.known_facts(grid)), only),
            [line for part in every for line in part.lines],
            results,
            name,
        ),
    ]
    return Table(rows, shown, notes, name)


def _trials(row: Row, budget: int, results: Results) -> Row | None:
    """Count the settings of a method that were tried on holdout data, and those planned."""
    if row["method"] not in METHODS or not fields(METHODS[row["method"]]):  # type: ignore[arg-type]
        return None
    done = results.trials[row["dataset"], row["scenario"], row["method"]]
    return {"done": done, "of": budget}


def _view(grid: Grid, results: Results, only: Only) -> Table:
    """Return the runs of other grids with their times."""
    rows: list[Row] = []
    for name in grid.views:
        part = _part(built_in()[name], results, only, "time")
        shown = [part.rows[place] for place in part.shown]
        rows += [row for row in shown if row["method"] != "original"]
    return Table(rows, rows, [], "time")


def grids_by_pool(grid: Grid, results: Results) -> list[Grid]:
    """Return the grid; if it does not name the pool of LiRA, once for each pool with results."""
    attack = grid.lira
    if attack is None or attack.pool:
        return [grid]
    settings = [line.attack for line in results.lines.values() if line.attack is not None]
    same = [one for one in settings if {**one, "pool": ""} == attack.settings]
    pools = dict.fromkeys(str(one["pool"]) for one in same)
    return [replace(grid, attack=replace(attack, pool=pool)) for pool in pools] or [grid]


def _part(grid: Grid, results: Results, only: Only, measurement: str | None) -> Part:
    lines = find_lines(grid, results)
    whole, groups = _groups(grid, lines), _groups(grid, lines, only)
    order: list[str] = []
    for method in grid.methods:
        variants = [variant.name for variant in grid.variants if variant.method == method]
        order += [method, *(f"{method}, {name}" for name in variants)]
    places = sorted(groups, key=lambda place: (*place[:2], order.index(place.label), place.preset))
    oracles = {
        place[:2]: group.results for place, group in whole.items() if group.cell.method == ORACLE
    }
    found = [line for line in lines.values() if line is not None]
    shadows = _shadows(grid.lira, found)
    rows = {
        place: {**_row(place, groups[place], oracles.get(place[:2], {}), measurement), **shadows}
        for place in places
    }
    ran = {place for place, group in whole.items() if group.lines}
    return Part(rows, _shown(places, ran), groups, found)


def _shadows(attack: Attack | None, lines: Iterable[Result]) -> Row:
    """Return the facts about the shadow models of a row; None if there are no results."""
    if attack is None:
        return {}
    line = next((line for line in lines if line.shadows is not None), None)
    if line is None:
        return {"shadows": {"pool": attack.pool} if attack.pool else None}
    facts = line.shadows or {}
    return {"shadows": {**facts, "pool": attack.pool, "differs": recipe_differences(line)}}


def recipe_differences(line: Result) -> dict[str, list[Any]]:
    """Return how the shadow models of a line of LiRA were trained differently from its target.

    Name of a recipe's field -> its value in the pool, and in the target.
    """
    assert line.shadows is not None
    # As files store it: a tuple is a list.
    target, pool = json.loads(to_json(to_dict(line.training.recipe))), line.shadows
    pool_recipe = pool.get("recipe") or {"epochs": pool["epochs"]}
    names = [name for name in pool_recipe if name not in ("compile", "precision")]
    return {
        name: [pool_recipe[name], target[name]]
        for name in names
        if pool_recipe[name] != target.get(name)
    }


def find_lines(grid: Grid, results: Results) -> dict[Cell, Result | None]:
    """Return the cells of a grid, and the result of each that has one."""
    known = {block.dataset: list(results.facts(block.dataset)) for block in grid.blocks}
    return {
        cell: find_line(grid, cell, known[cell.block.dataset], results)
        for cell in cells(grid, results.known_facts(grid))
    }


def find_line(grid: Grid, cell: Cell, sources: Iterable[Facts], results: Results) -> Result | None:
    """Return the result of a cell, found by the id of its experiment on one of the sources."""
    if cell.method not in METHODS:
        return None
    experiments = [experiment(grid, cell, facts) for facts in sources]
    ids = [result_id(one, grid.measurement_settings) for one in experiments]
    found = [results.lines[name] for name in ids if name in results.lines]
    return min(found, key=lambda line: line.failed, default=None)


def _groups(
    grid: Grid, lines: Mapping[Cell, Result | None], only: Only | None = None
) -> dict[Place, Group]:
    groups: dict[Place, Group] = {}
    for cell in narrow(lines, only or {}):
        block = grid.blocks.index(cell.block)
        place = Place(block, cell.removed or 0, cell.label, cell.preset)
        group = groups.setdefault(place, Group(cell))
        group.cases.append(cell.case)
        line = lines[cell]
        if line is not None:
            group.lines[cell.case] = line
    return groups


def _shown(places: Sequence[Place], ran: Container[Place]) -> list[Place]:
    first = {place[:3]: place for place in reversed(places)}
    some = {place[:3] for place in places if place in ran}
    return [
        place
        for place in places
        if place in ran or (place[:3] not in some and first[place[:3]] == place)
    ]


def _row(place: Place, group: Group, oracle: Mapping[Case, Result], measurement: str | None) -> Row:
    cell, found = group.cell, group.results
    block = cell.block
    values, reference = (
        {case: _values(line, oracle, block, measurement) for case, line in lines.items()}
        for lines in (found, oracle)
    )
    paper = _paper(block, place.removed, cell, measurement)
    row: Row = {
        "dataset": block.dataset,
        "scenario": block.scenario,
        "model": block.model,
        "recipe": block.recipe_preset,
        "removed": place.removed or None,
        "fraction": block.fraction if block.scenario == "samples" else None,
        "method": cell.method,
        "variant": cell.variant,
        "preset": place.preset,
        "n": len(found),
        "of": len(group.cases),
    }
    for name in COLUMNS[measurement]:
        row[name] = {**_spread(one[name] for one in values.values()), "paper": paper.get(name)}
    if measurement == "svm":
        row["chance"] = _spread(line.scores["chance"] for line in found.values())["mean"]
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
    line: Result, oracle: Mapping[Case, Result], block: Block, measurement: str | None
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


def _spread(values: Iterable[float | None]) -> dict[str, float | None]:
    """Return mean and sample standard deviation; a single value has no deviation."""
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.mean(known) if known else None,
        "std": statistics.stdev(known) if len(known) > 1 else None,
    }


Values = Mapping[Case, Mapping[str, float | None]]


def _gap(found: Values, oracle: Values) -> dict[str, float | int | None] | None:
    """Return our values minus those of retrained models: means over the cases that both have."""
    both = [case for case in found if case in oracle]
    if not both:
        return None
    gaps: dict[str, float | int | None] = {}
    for name in found[both[0]]:
        pairs = [(found[case][name], oracle[case][name]) for case in both]
        known = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
        gaps[name] = statistics.mean(known) if known else None
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


def _paper(
    block: Block, removed: int, cell: Cell, measurement: str | None
) -> dict[str, float | None]:
    """Return the means of the paper, with shares in 0..1; empty if it has no such cell.

    The paper used ResNet-18 and removed a tenth of the samples or one class.
    """
    is_other_bias = block.bias not in (None, Bias())
    is_other = block.random_classes or removed > 1 or block.fraction != 0.1 or is_other_bias
    if measurement not in (None, "svm", "lira", "bias") or is_other:
        return {}
    table = "bias" if measurement == "bias" else PAPER[block.scenario]
    if measurement in ("svm", "lira"):
        table = f"{measurement}-{table}"
    elif cell.variant:
        table = f"ablation-{table}"
    elif block.model != "resnet18":
        table = f"architectures-{table}"
    keys = {"dataset": block.dataset, "method": cell.method}
    keys |= {"variant": cell.variant, "model": block.model}
    every = [{"variant": "", "model": "resnet18", **row} for row in _numbers().get(table, [])]
    row = next((row for row in every if keys.items() <= row.items()), {})
    return {
        name: row[score]["mean"] / COLUMNS[measurement][name].factor
        for name, score in measures(block.scenario, measurement).items()
        if row.get(score)
    }
