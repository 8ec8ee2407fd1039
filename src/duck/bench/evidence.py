"""Evidence for claims: results by their row and case, and pairs of results."""

import statistics
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from duck.analysis.paired import PairedTest, paired_test
from duck.bench.grids import Cell, Grid, built_in
from duck.bench.results import Result, Results
from duck.bench.tables import find_lines, grids_by_pool

LinesByCase = dict[int | str, Result]
PAPER_MODEL = "resnet18"
"""Of all tables but one; titles leave it out."""


def classes_removed(count: int) -> str:
    """Return "1 class removed" or "3 classes removed"."""
    return f"{count} {'class' if count == 1 else 'classes'} removed"


class Place(NamedTuple):
    """A row of results. Rows that differ only in method and preset can be compared."""

    dataset: str
    scenario: str
    model: str
    removed: int | None
    """Number of random classes that each case removes; None in other scenarios."""
    setting: str
    """What else the row depends on: LiRA's pool, or a recipe other than the standard one."""
    method: str
    """With the name of its variant."""
    preset: str

    @property
    def cell(self) -> tuple[str | int | None, ...]:
        """All but method and preset."""
        return self[:5]

    @property
    def name(self) -> str:
        """The method and its preset."""
        method = (
            self.method.replace("duck", "DUCK") if self.method.startswith("duck") else self.method
        )
        return f"{method} ({self.preset})"

    @property
    def where(self) -> str:
        """All but method and preset, in words."""
        model = "" if self.model == PAPER_MODEL else self.model
        removed = "" if self.removed is None else classes_removed(self.removed)
        return ", ".join(filter(None, (self.dataset, self.scenario, model, removed, self.setting)))

    @property
    def title(self) -> str:
        """The whole row in words."""
        return f"{self.where}, {self.name}"


Places = dict[Place, LinesByCase]


class Source:
    """The results of a folder, by place and case."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self._tables: dict[str, Places] = {}
        self.cases: dict[Place, int] = {}
        """How many cases each place of a table has, run or not."""

    def table(self, name: str) -> Places:
        """Return the results that the table of a grid shows, also places without results."""
        if name not in self._tables:
            grid = built_in().get(name)
            self._tables[name] = {} if grid is None else self._read(grid)
        return self._tables[name]

    def _read(self, grid: Grid) -> Places:
        """Choose results as `make_table` does; with LiRA, once for each pool with results."""
        places: Places = {}
        grids = grids_by_pool(grid, self.results)
        for one in grids:
            pool = f"pool {one.attack.pool}" if one.attack and len(grids) > 1 else ""
            for cell, line in find_lines(one, self.results).items():
                place = _place(cell, pool)
                lines = places.setdefault(place, {})
                self.cases[place] = len(cell.block.cases)
                if line is not None and not line.failed:
                    lines.setdefault(cell.case, line)
        return places


def _place(cell: Cell, pool: str) -> Place:
    block = cell.block
    recipe = f"{block.recipe_preset} recipe" if block.recipe_preset != "standard" else ""
    scenario = block.dataset, block.scenario, block.model, block.random_classes
    return Place(*scenario, pool or recipe, cell.label, cell.preset)


def comparable(places: Places, place: Place, method: str) -> list[tuple[Place, LinesByCase]]:
    """Return the places of another method that can be compared with this one."""
    return [
        (other, lines)
        for other, lines in places.items()
        if other.method == method and other.cell == place.cell
    ]


def other_lines(places: Places, place: Place, method: str) -> LinesByCase:
    """Return the results of Original or Retrained, which have one preset, whatever its name."""
    lines: LinesByCase = {}
    for _, theirs in comparable(places, place, method):
        lines = theirs | lines
    return lines


def rivals_of(places: Places, place: Place) -> Places:
    """Return the places of other methods that can be compared with this one."""
    return {
        other: lines
        for other, lines in places.items()
        if other.cell == place.cell and other.method not in ("original", "retrained", "duck")
    }


def with_results(places: Places, method: str) -> Iterator[tuple[Place, LinesByCase]]:
    """Yield the places of a method that have results."""
    return ((place, lines) for place, lines in places.items() if place.method == method and lines)


class Pairs(list[tuple[float, float]]):
    """Values of two rows in the same cases: the first is DUCK's."""

    @property
    def n(self) -> int:
        return len(self)

    @property
    def first(self) -> list[float]:
        return [first for first, _ in self]

    @property
    def second(self) -> list[float]:
        return [second for _, second in self]

    @property
    def gap(self) -> float:
        """Mean of the first less the second."""
        return statistics.mean(first - second for first, second in self)

    @property
    def test(self) -> PairedTest:
        return paired_test(self.first, self.second)


def pair(ours: LinesByCase, theirs: LinesByCase, score: str) -> Pairs:
    """Return the values of a score in the cases that both have."""
    shared = [(ours[case].scores, theirs[case].scores) for case in ours if case in theirs]
    both = [(first.get(score), second.get(score)) for first, second in shared]
    return Pairs((a, b) for a, b in both if a is not None and b is not None)


def values_of(lines: LinesByCase, score: str) -> list[float]:
    """Return the known values of a score in all cases."""
    values = [line.scores.get(score) for line in lines.values()]
    return [value for value in values if value is not None]


def same_device(fast: LinesByCase, slow: LinesByCase) -> LinesByCase:
    """Return the slow runs whose times can be compared: same case, same device."""
    return {
        case: line
        for case, line in slow.items()
        if case in fast and fast[case].device == line.device and line.alone and fast[case].alone
    }


def spread(values: Iterable[float], factor: float = 1, digits: int = 3) -> str:
    """Format mean ± sample standard deviation; a single value has no deviation."""
    numbers = [factor * value for value in values]
    if not numbers:
        return "-"
    mean = f"{statistics.mean(numbers):.{digits}f}"
    return mean if len(numbers) < 2 else f"{mean} ± {statistics.stdev(numbers):.{digits}f}"
