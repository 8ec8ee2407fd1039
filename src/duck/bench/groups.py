"""The results of a grid, by the rows of its table."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from duck.bench.grids import (
    Block,
    Case,
    Cell,
    Facts,
    Grid,
    Only,
    cells,
    experiment,
    narrow,
    result_id,
)
from duck.bench.results import Result, Results
from duck.experiment import to_dict
from duck.json_text import to_json
from duck.methods.base import METHODS

PAPER_MODEL = "resnet18"
"""Of all tables but one; titles leave it out."""
ResultsByCase = dict[Case, Result]
RowKey = tuple[Any, ...]
"""What identifies a row; the preset comes last."""


@dataclass(frozen=True, eq=False)
class Group:
    """The cells of one row: a method with its preset, in all cases of a block."""

    pool: str
    """Digest of the shadow models that LiRA compares with; empty for others."""
    cells: list[Cell]
    results: dict[Cell, Result]
    """The cells that have a result, also if it is of a failed run."""

    @property
    def cell(self) -> Cell:
        """The first of its cells."""
        return self.cells[0]

    @property
    def place(self) -> tuple[str, Block, int | None]:
        """The same for groups that differ in method and preset alone: these can be compared."""
        return self.pool, self.cell.block, self.cell.removed

    @property
    def key(self) -> RowKey:
        return *self.place, self.cell.label, self.cell.preset

    @property
    def done(self) -> ResultsByCase:
        """The results of runs that did not fail."""
        return {cell.case: result for cell, result in self.results.items() if not result.failed}

    @property
    def where(self) -> str:
        """The place in words."""
        block = self.cell.block
        words = [block.dataset, block.scenario]
        if block.model != PAPER_MODEL:
            words.append(block.model)
        if self.cell.removed and (block.random_classes or self.cell.removed > 1):
            classes = "class" if self.cell.removed == 1 else "classes"
            words.append(f"{self.cell.removed} {classes} removed")
        if self.pool:
            words.append(f"pool {self.pool}")
        if block.recipe_preset != "standard":
            words.append(f"{block.recipe_preset} recipe")
        return ", ".join(words)

    @property
    def name(self) -> str:
        """The method with its variant and preset."""
        return f"{self.cell.label} ({self.cell.preset})"

    def narrow(self, only: Only) -> "Group":
        """Return the group with the cells that `--only` selects, perhaps none."""
        chosen = narrow(self.cells, only)
        results = {cell: self.results[cell] for cell in chosen if cell in self.results}
        return Group(self.pool, chosen, results)


def find_groups(grid: Grid, results: Results) -> list[Group]:
    """Return the groups of a grid in the order of running; with LiRA, those of each pool."""
    groups: dict[RowKey, Group] = {}
    for one in _grids_by_pool(grid, results):
        pool = one.attack.pool if one.attack else ""
        sources = {block.dataset: results.facts(block.dataset) for block in one.blocks}
        first_sources = {name: known[0] for name, known in sources.items() if known}
        for cell in cells(one, first_sources):
            result = _find_result(one, cell, sources[cell.block.dataset], results)
            key = Group(pool, [cell], {}).key
            group = groups.setdefault(key, Group(pool, [], {}))
            group.cells.append(cell)
            if result is not None:
                group.results[cell] = result
    return list(groups.values())


def _grids_by_pool(grid: Grid, results: Results) -> list[Grid]:
    """Return the grid; if it does not name the pool of LiRA, once for each pool with results."""
    attack = grid.attack
    if attack is None or not attack.needs_pool or attack.pool:
        return [grid]
    stored = dict.fromkeys(result.attack for result in results.results.values() if result.attack)
    same = [one for one in stored if replace(one, pool="").settings == attack.settings]
    return [replace(grid, attack=replace(attack, pool=one.pool)) for one in same] or [grid]


def _find_result(
    grid: Grid, cell: Cell, sources: Iterable[Facts], results: Results
) -> Result | None:
    """Return the result of a cell, found by the id of its experiment on one of the sources."""
    if cell.method not in METHODS:
        return None
    ids = [result_id(experiment(grid, cell, facts), grid.measurement) for facts in sources]
    found = [results.results[name] for name in ids if name in results.results]
    return min(found, key=lambda result: result.failed, default=None)


def recipe_differences(result: Result) -> dict[str, list[Any]]:
    """Return how the shadow models of a result were trained differently from its target.

    Name of a recipe's field -> its value in the pool, and in the target.
    """
    assert result.shadows is not None
    # As files store it: a tuple is a list.
    target = json.loads(to_json(to_dict(result.training.recipe)))
    return {
        name: [value, target[name]]
        for name, value in result.shadows.recipe.items()
        if name not in ("compile", "precision") and value != target.get(name)
    }
