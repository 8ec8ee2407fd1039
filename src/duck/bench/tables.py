"""From lines of results to the rows of a table: mean, spread, the paper's number, the gap to our own retrained models."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from duck.audits.roc import RATES, least_others
from duck.bench.grids import Block, Cell, Facts, Grid, Only, cells, experiment, line_id, narrow
from duck.bench.results import Line, Results
from duck.methods.base import METHODS


class Column(NamedTuple):
    """A measure: its name in print, what it is multiplied with there (the paper gives per cent), and its digits."""

    title: str
    factor: float = 1.0
    digits: int = 3


HITS = {"tpr_1": Column("TPR@1%FPR %", 100, 2), "tpr_0.1": Column("TPR@0.1%FPR %", 100, 2), "auc": Column("AUC")}
COLUMNS: dict[str | None, dict[str, Column]] = {
    None: {"aus": Column("AUS"), "kept": Column("kept %", 100, 2), "forgotten": Column("forgotten %", 100, 2)},
    "svm": {"f1": Column("F1 %", 100, 2)},
    "lira": {**HITS, "f1": Column("F1 %", 100, 2)},
    "confidence": HITS,
}
"""By the attack of a grid; without one, what the paper's large tables show."""
ACCURACIES = {
    "class": {"aus": "aus", "kept": "retain_test", "forgotten": "forget_test"},
    "samples": {"aus": "aus", "kept": "test", "forgotten": "forget"},
}
"""Those columns as scores: where a class goes, its test samples count as forgotten, else the forgotten training samples."""
ORACLE = "retrained"
PAPER = {"class": "cr", "samples": "hr"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    rows: list[Row]
    notes: list[str]
    """What a reader must know besides: failures, results that do not belong."""
    attack: str | None = None

    @property
    def columns(self) -> dict[str, Column]:
        return COLUMNS[self.attack]


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


def make_table(grid: Grid, results: Results, only: Only) -> Table:
    """A row for each data set, scenario, method and preset, in the order of the grid.

    A preset that was never run has a row only where its method has no other.
    """
    sources = {block.dataset: list(results.facts(block.dataset)) for block in grid.blocks}
    every = cells(grid, {name: some[0] for name, some in sources.items() if some})
    found = ((cell, _line(grid, cell, sources[cell.block.dataset], results)) for cell in every)
    lines = {_key(grid, cell): line for cell, line in found if line is not None}
    oracles = {place.block: group.results for place, group in _groups(grid, every, lines).items() if place.method == ORACLE}
    groups = _groups(grid, narrow(every, only), lines)
    shown = sorted(_shown(groups), key=lambda place: (place.block, grid.methods.index(place.method), place.preset))
    name = None if grid.attack is None else grid.attack.name
    rows = [_row(place, groups[place], oracles.get(place.block, {}), name) for place in shown]
    notes = [note for row in rows for note in _notes(row)] + _unresolved(line for place in shown for line in groups[place].results.values())
    return Table(rows, [*_shadows(lines.values()), *notes, *_strays(every, lines.values(), results, name)], name)


def _line(grid: Grid, cell: Cell, sources: Iterable[Facts], results: Results) -> Line | None:
    """The result of a cell: the line with the id that the cell's experiment has on the line's data."""
    if cell.method not in METHODS:
        return None
    settings = None if grid.attack is None else grid.attack.settings
    found = [results.lines.get(line_id(experiment(grid, cell, facts), settings)) for facts in sources]
    return min((line for line in found if line is not None), key=lambda line: "error" in line, default=None)


def _key(grid: Grid, cell: Cell) -> tuple[Place, int]:
    return Place(grid.blocks.index(cell.block), cell.method, cell.preset), cell.case


def _groups(grid: Grid, some: Iterable[Cell], lines: Mapping[tuple[Place, int], Line]) -> dict[Place, Group]:
    groups: dict[Place, Group] = {}
    for cell in some:
        place, case = _key(grid, cell)
        group = groups.setdefault(place, Group(cell.block, [], {}))
        group.cases.append(case)
        if (place, case) in lines:
            group.lines[case] = lines[place, case]
    return groups


def _shown(groups: dict[Place, Group]) -> list[Place]:
    first = {(place.block, place.method): place for place in reversed(groups)}
    ran = {(place.block, place.method) for place, group in groups.items() if group.lines}
    return [
        place
        for place, group in groups.items()
        if group.lines or ((place.block, place.method) not in ran and first[place.block, place.method] == place)
    ]


def _row(place: Place, group: Group, oracle: Mapping[int, Line], attack: str | None) -> Row:
    block, found = group.block, group.results
    measures = ACCURACIES[block.scenario] if attack is None else {name: name for name in COLUMNS[attack]}
    paper = _paper(block, place.method, attack, measures)
    return {
        "dataset": block.dataset,
        "scenario": block.scenario,
        "model": block.model,
        "method": place.method,
        "preset": place.preset,
        "n": len(found),
        "of": len(group.cases),
        **{name: {**_spread(line["scores"][score] for line in found.values()), "paper": paper[name]} for name, score in measures.items()},
        **({"chance": _spread(line["scores"]["chance"] for line in found.values())["mean"]} if attack == "svm" else {}),
        "gap_to_retrained": _gap(measures, found, oracle) if place.method != ORACLE else None,
        "seconds": _median(line["seconds"] for line in found.values()),
        "prepare_seconds": _median(line["prepare_seconds"] for line in found.values()),
        "errors": _counted(line["error"] for line in group.lines.values() if "error" in line),
        "notes": _counted(note for line in found.values() for note in line["notes"]) if place.method != "original" else {},
    }


def _spread(values: Iterable[float | None]) -> dict[str, float | None]:
    """Mean and sample standard deviation, which a single value does not have."""
    known = [value for value in values if value is not None]
    return {"mean": statistics.mean(known) if known else None, "std": statistics.stdev(known) if len(known) > 1 else None}


def _gap(measures: Mapping[str, str], found: Mapping[int, Line], oracle: Mapping[int, Line]) -> dict[str, float | int | None] | None:
    """Ours minus retrained, a mean over the cases that both have."""
    both = [(found[case]["scores"], oracle[case]["scores"]) for case in found if case in oracle]
    if not both:
        return None
    gaps = {name: _spread(_minus(ours[score], theirs[score]) for ours, theirs in both)["mean"] for name, score in measures.items()}
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


def _paper(block: Block, method: str, attack: str | None, measures: Mapping[str, str]) -> dict[str, float | None]:
    """The paper's means, shares in 0..1; None where it has no such cell (it used ResNet-18, and a tenth)."""
    alike = block.model == "resnet18" and (block.scenario == "class" or block.fraction == 0.1)
    table = PAPER[block.scenario] if attack is None else f"{attack}-{PAPER[block.scenario]}"
    row = _numbers().get(table, {}).get((block.dataset, method), {}) if alike else {}
    cell = {name: row.get(score) for name, score in measures.items()}
    return {name: None if value is None else value["mean"] / COLUMNS[attack][name].factor for name, value in cell.items()}


def _notes(row: Row) -> list[str]:
    who = f"{row['dataset']}, {row['scenario']}, {row['method']} ({row['preset']})"
    failed = [f"{who} failed in {count} of {row['of']}: {error}" for error, count in row["errors"].items()]
    return failed + [f"{who}, {count} of {row['n']}: {note}" for note, count in row["notes"].items()]


def _shadows(used: Iterable[Line]) -> list[str]:
    """What LiRA compared with, each pool once."""
    pools = {line["shadows"]["pool"]: line["shadows"] for line in used if "shadows" in line}
    return [
        f"Compared with {about['models']} shadow models, trained on random halves for {about['epochs']} epochs: "
        f"accuracy {100 * about['train']:.1f} % on what they saw, {100 * about['test']:.1f} % on test samples."
        for about in pools.values()
    ]


def _unresolved(used: Iterable[Line]) -> list[str]:
    """The rates that too few non-members cannot show, which a line holds as None."""
    scores = [line["scores"] for line in used]
    return [
        f"TPR@{100 * rate:g}%FPR is left out where there are fewer than {least_others(rate):,} non-members: they cannot show so low a rate."
        for rate in RATES
        if any(score.get(f"tpr_{100 * rate:g}", 0) is None for score in scores)
    ]


def _strays(every: Iterable[Cell], used: Iterable[Line], results: Results, attack: str | None) -> list[str]:
    """Settings change; results of the old ones stay in the files but do not belong in the table."""
    names, kept = {(c.block.dataset, c.block.scenario, c.case, c.method) for c in every}, {id(line) for line in used}
    alike = [line for line in results.done.values() if (line["dataset"], line["scenario"], line["case"], line["method"]) in names]
    count = sum(id(line) not in kept and line.get("attack", {}).get("name") == attack for line in alike)
    return [f"Left out: {count} results of the same cells with other settings."] if count else []
