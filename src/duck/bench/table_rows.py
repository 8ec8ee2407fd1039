"""A table of results as data: its rows and notes."""

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from duck.bench.columns import COLUMNS, Column, Spread, find_attack, spread
from duck.bench.groups import Group
from duck.bench.results import ShadowFacts
from duck.metrics import TOO_MUCH_LOST


class Trials(NamedTuple):
    """Settings of a method that were tried on holdout data, and those planned."""

    done: int
    of: int


@dataclass(frozen=True)
class TableRow:
    """A row of a table: a method with its preset, in all cases of a block."""

    group: Group
    values: dict[str, Spread]
    """By the names of the columns."""
    gaps: dict[str, float | None] | None
    """Mean differences to retrained models over the cases that both have, with their number `n`."""
    trials: Trials | None
    """None: the method has no settings to search."""
    shadows: ShadowFacts | None = None
    differs: dict[str, list[Any]] = field(default_factory=dict)
    """How the shadow models were trained differently from the targets."""

    @cached_property
    def names(self) -> dict[str, Any]:
        """What identifies the row; `n` of its cases, which are `of`, have a result."""
        cell, block = self.group.cell, self.group.cell.block
        return {
            "dataset": block.dataset,
            "scenario": block.scenario,
            "model": block.model,
            "recipe": block.recipe_preset,
            "removed": cell.removed or None,
            "fraction": block.fraction if block.scenario == "samples" else None,
            "method": cell.method,
            "variant": cell.variant,
            "preset": cell.preset,
            "n": len(self.group.done),
            "of": len(self.group.cells),
        }

    @property
    def seconds(self) -> dict[str, float | None]:
        """The median times, `prepare_seconds` too, without those that are columns."""
        timed = [result for result in self.group.done.values() if result.alone]
        times = {
            "seconds": median(result.seconds for result in timed),
            "prepare_seconds": median(result.prepare_seconds for result in timed),
        }
        return {name: value for name, value in times.items() if name not in self.values}

    @property
    def errors(self) -> dict[str, int]:
        """The errors of failed runs, with their counts."""
        return Counter(result.error for result in self.group.results.values() if result.error)

    @property
    def notes(self) -> dict[str, int]:
        """The notes of the runs, with their counts; those of the original are left out."""
        notes: Counter[str] = Counter()
        if self.group.cell.method != "original":
            for result in self.group.done.values():
                notes.update(map(_without_numbers, result.notes))
        return notes

    def mean(self, score: str) -> float | None:
        """Return the mean of a score that is no column."""
        return spread(result.scores[score] for result in self.group.done.values()).mean


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
    has_search: bool = False
    """Whether the grid plans a search of settings."""

    @property
    def columns(self) -> dict[str, Column]:
        return COLUMNS[self.measurement]

    @property
    def needs_pool(self) -> bool:
        """Whether the attack compares with shadow models."""
        attack = find_attack(self.measurement)
        return attack is not None and attack.needs_shadows()

    @property
    def several_pools(self) -> bool:
        """Whether LiRA's results compared with different shadow models."""
        return len({row.group.pool for row in self.rows}) > 1


def median(values: Iterable[float]) -> float | None:
    """Return the median, or None if there are no values."""
    known = list(values)
    return statistics.median(known) if known else None


def _without_numbers(note: str) -> str:
    """Return a note without the numbers of its run, so that equal notes can be counted."""
    return f"{TOO_MUCH_LOST}." if note.startswith(TOO_MUCH_LOST) else note
