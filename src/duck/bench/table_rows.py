"""A table of results as data: its rows and notes."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from duck.bench.columns import COLUMNS, Column, Spread
from duck.bench.results import ShadowFacts


class Trials(NamedTuple):
    """Settings of a method that were tried on holdout data, and those planned."""

    done: int
    of: int


@dataclass(frozen=True)
class TableRow:
    """A row of a table: a method with its preset, in all cases of a block."""

    dataset: str
    scenario: str
    model: str
    recipe: str
    removed: int | None
    fraction: float | None
    method: str
    variant: str
    preset: str
    n: int
    """Cases with a result,"""
    of: int
    """and all cases."""
    values: dict[str, Spread]
    """By the names of the columns."""
    further_scores: dict[str, float | None]
    gap_to_retrained: dict[str, float | None] | None
    """Means over the cases that both have, with their number `n`."""
    seconds: float | None
    prepare_seconds: float | None
    errors: dict[str, int]
    """Of failed runs, with their counts."""
    notes: dict[str, int]
    pool: str = ""
    """Digest of the shadow models that LiRA compared with."""
    shadows: ShadowFacts | None = None
    differs: dict[str, list[Any]] = field(default_factory=dict)
    """How the shadow models were trained differently from the targets."""
    trials: Trials | None = None


@dataclass(frozen=True)
class Table:
    """The rows of a grid with notes."""

    rows: list[TableRow]
    """One for each data set, scenario, method and preset, also for those that were never run."""
    visible_rows: list[TableRow]
    """The rows that are printed. A preset that was never run has a row only if its method has no
    other one; a note names the rest."""
    notes: list[str]
    """Failures, results that are left out, and facts about the numbers."""
    measurement: str | None = None
    """Name of the attack or study, or `time`."""
    needs_pool: bool = False
    """Whether the attack compares with shadow models."""
    has_search: bool = False
    """Whether the grid plans a search of settings."""

    @property
    def columns(self) -> dict[str, Column]:
        return COLUMNS[self.measurement]

    @property
    def several_pools(self) -> bool:
        """Whether LiRA's results compared with different shadow models."""
        return len({row.pool for row in self.rows}) > 1
