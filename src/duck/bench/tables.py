"""From lines of results to the rows of a table: mean, spread, the paper's number, the gap to our own retrained models."""

import json
import statistics
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from duck.bench.grids import Attack, Block, Cell, Facts, Grid, Only, cells, experiment, line_id, narrow
from duck.bench.lines import Line
from duck.bench.measures import COLUMNS, Column, measures
from duck.bench.notes import compared_with, never_run, of_runs, strays, unresolved
from duck.bench.results import Results
from duck.methods.base import METHODS

ORACLE = "retrained"
PAPER = {"class": "cr", "samples": "hr"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    rows: list[Row]
    """One for each data set, scenario, method and preset, also for those that were never run."""
    shown: list[Row]
    """Those that are printed: a preset that was never run has a row only where its method has no other, a note names the rest."""
    notes: list[str]
    """What a reader must know besides: failures, results that do not belong."""
    attack: str | None = None

    @property
    def columns(self) -> dict[str, Column]:
        return COLUMNS[self.attack]

    @property
    def several_pools(self) -> bool:
        """Whether LiRA's results compared with different shadow models."""
        return len({row["shadows"]["pool"] for row in self.rows if row.get("shadows")}) > 1


class Place(NamedTuple):
    """A row: the block's number in the grid, method and preset."""

    block: int
    method: str
    preset: str


@dataclass
class Group:
    """The cells of a row, and the lines that were found for them, by case."""

    block: Block
    cases: list[int]
    lines: dict[int, Line]

    @property
    def results(self) -> dict[int, Line]:
        return {case: line for case, line in self.lines.items() if "error" not in line}


Groups = dict[Place, Group]


class Part(NamedTuple):
    """The rows of one attack, and all lines that were found for it, also those of cells that were not asked for."""

    rows: dict[Place, Row]
    shown: list[Place]
    groups: Groups
    lines: list[Line]


def make_table(grid: Grid, results: Results, only: Only) -> Table:
    """In the order of the grid; results that compared with different shadow models never share a row."""
    sources = {block.dataset: list(results.facts(block.dataset)) for block in grid.blocks}
    every = cells(grid, {name: some[0] for name, some in sources.items() if some})
    made = [_part(one, every, sources, results, only) for one in _aimed(grid, results)]
    parts = [part for part in made if any(group.lines for group in part.groups.values())] or made[:1]
    several, name = len(parts) > 1, None if grid.attack is None else grid.attack.name
    rows = [row for part in parts for row in part.rows.values()]
    shown = [part.rows[place] for part in parts for place in part.shown]
    hidden = [row for part in parts for place, row in part.rows.items() if place not in part.shown]
    notes = [
        *compared_with(rows),
        *(note for row in shown for note in of_runs(row, several)),
        *never_run(hidden, several),
        *unresolved(line for part in parts for group in part.groups.values() for line in group.results.values()),
        *strays(narrow(every, only), [line for part in made for line in part.lines], results, name),
    ]
    return Table(rows, shown, notes, name)


def _aimed(grid: Grid, results: Results) -> list[Grid]:
    """The grid; where it leaves LiRA's shadow models open, once with each that there are results of."""
    attack = grid.attack
    if attack is None or attack.name != "lira" or attack.pool:
        return [grid]
    held = (line["attack"] for line in results.lines.values() if "attack" in line)
    pools = dict.fromkeys(one["pool"] for one in held if {**one, "pool": ""} == attack.settings)
    return [replace(grid, attack=replace(attack, pool=pool)) for pool in pools] or [grid]


def _part(grid: Grid, every: Sequence[Cell], sources: Mapping[str, list[Facts]], results: Results, only: Only) -> Part:
    found = ((cell, _line(grid, cell, sources[cell.block.dataset], results)) for cell in every)
    lines = {_key(grid, cell): line for cell, line in found if line is not None}
    whole, groups = _groups(grid, every, lines), _groups(grid, narrow(every, only), lines)
    places = sorted(groups, key=lambda place: (place.block, grid.methods.index(place.method), place.preset))
    oracles = {place.block: group.results for place, group in whole.items() if place.method == ORACLE}
    name, shadows = None if grid.attack is None else grid.attack.name, _shadows(grid.attack, lines.values())
    rows = {place: {**_row(place, groups[place], oracles.get(place.block, {}), name), **shadows} for place in places}
    return Part(rows, _shown(places, {place for place, group in whole.items() if group.lines}), groups, list(lines.values()))


def _shadows(attack: Attack | None, lines: Iterable[Line]) -> Row:
    """What a row of LiRA says of what it compared with; None where there are no results."""
    if attack is None or attack.name != "lira":
        return {}
    about: Row = next((line["shadows"] for line in lines if "shadows" in line), {})
    return {"shadows": {**about, "pool": attack.pool} if attack.pool else None}


def _line(grid: Grid, cell: Cell, sources: Iterable[Facts], results: Results) -> Line | None:
    """The result of a cell: the line with the id that the cell's experiment has on the line's data."""
    if cell.method not in METHODS:
        return None
    settings = None if grid.attack is None else grid.attack.settings
    found = [results.lines.get(line_id(experiment(grid, cell, facts), settings)) for facts in sources]
    return min((line for line in found if line is not None), key=lambda line: "error" in line, default=None)


def _key(grid: Grid, cell: Cell) -> tuple[Place, int]:
    return Place(grid.blocks.index(cell.block), cell.method, cell.preset), cell.case


def _groups(grid: Grid, some: Iterable[Cell], lines: Mapping[tuple[Place, int], Line]) -> Groups:
    groups: Groups = {}
    for cell in some:
        place, case = _key(grid, cell)
        group = groups.setdefault(place, Group(cell.block, [], {}))
        group.cases.append(case)
        if (place, case) in lines:
            group.lines[case] = lines[place, case]
    return groups


def _shown(places: Sequence[Place], ran: Container[Place]) -> list[Place]:
    first = {place[:2]: place for place in reversed(places)}
    some = {place[:2] for place in places if place in ran}
    return [place for place in places if place in ran or (place[:2] not in some and first[place[:2]] == place)]


def _row(place: Place, group: Group, oracle: Mapping[int, Line], attack: str | None) -> Row:
    block, found = group.block, group.results
    scores = measures(block.scenario, attack)
    paper = _paper(block, place.method, attack, scores)
    return {
        "dataset": block.dataset,
        "scenario": block.scenario,
        "model": block.model,
        "method": place.method,
        "preset": place.preset,
        "n": len(found),
        "of": len(group.cases),
        **{name: {**_spread(line["scores"][score] for line in found.values()), "paper": paper[name]} for name, score in scores.items()},
        **({"chance": _spread(line["scores"]["chance"] for line in found.values())["mean"]} if attack == "svm" else {}),
        "gap_to_retrained": _gap(scores, found, oracle) if place.method != ORACLE else None,
        "seconds": _median(line["seconds"] for line in found.values()),
        "prepare_seconds": _median(line["prepare_seconds"] for line in found.values()),
        "errors": _counted(line["error"] for line in group.lines.values() if "error" in line),
        "notes": _counted(note for line in found.values() for note in line["notes"]) if place.method != "original" else {},
    }


def _spread(values: Iterable[float | None]) -> dict[str, float | None]:
    """Mean and sample standard deviation, which a single value does not have."""
    known = [value for value in values if value is not None]
    return {"mean": statistics.mean(known) if known else None, "std": statistics.stdev(known) if len(known) > 1 else None}


def _gap(scores: Mapping[str, str], found: Mapping[int, Line], oracle: Mapping[int, Line]) -> dict[str, float | int | None] | None:
    """Ours minus retrained, a mean over the cases that both have."""
    both = [(found[case]["scores"], oracle[case]["scores"]) for case in found if case in oracle]
    if not both:
        return None
    gaps = {name: _spread(_minus(ours[score], theirs[score]) for ours, theirs in both)["mean"] for name, score in scores.items()}
    return {**gaps, "n": len(both)}


def _minus(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours - theirs


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None


def _counted(messages: Iterable[str]) -> dict[str, int]:
    return dict(Counter(messages))


@cache
def _numbers() -> dict[str, dict[tuple[str, str], Row]]:
    plain = json.loads(files("duck.bench").joinpath("paper_numbers.json").read_text(encoding="utf-8"))
    return {name: {(row["dataset"], row["method"]): row for row in rows} for name, rows in plain.items()}


def _paper(block: Block, method: str, attack: str | None, scores: Mapping[str, str]) -> dict[str, float | None]:
    """The paper's means, shares in 0..1; None where it has no such cell (it used ResNet-18, and a tenth)."""
    alike = block.model == "resnet18" and (block.scenario == "class" or block.fraction == 0.1)
    table = PAPER[block.scenario] if attack is None else f"{attack}-{PAPER[block.scenario]}"
    row = _numbers().get(table, {}).get((block.dataset, method), {}) if alike else {}
    cell = {name: row.get(score) for name, score in scores.items()}
    return {name: None if value is None else value["mean"] / COLUMNS[attack][name].factor for name, value in cell.items()}
