"""The settings that a search varies, from methods/spaces.toml: ranges, grids, choices and fixed
values."""

import bisect
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from duck.errors import BadInput
from duck.files import package_toml
from duck.json_text import to_json
from duck.methods.base import METHODS, Method

EDGE = 0.05
"""Share of a range that counts as its edge."""
WIDENING_FACTOR = 4.0
"""Factor by which a range on a log scale is widened; a linear one grows by half of its width."""

Settings = dict[str, Any]
"""Values of a method's settings, with lists for tuples as in JSON."""


@dataclass(frozen=True)
class Values:
    """The values that a search may give to a setting, or to several that are chosen together."""

    low: Any = -math.inf
    """The ends of a range. Without them there are choices, or one fixed value."""
    high: Any = math.inf
    log: bool = False
    integer: bool = False
    min: float = -math.inf
    """A range is never widened beyond these limits."""
    max: float = math.inf
    grid: tuple[Any, ...] = ()
    """The values of a range that has no others, in order. The range is widened within the grid."""
    choices: tuple[Any, ...] = ()
    fixed: Any = None

    @property
    def is_range(self) -> bool:
        return bool(self.grid) or self.high < math.inf

    def covering(self, value: Any) -> "Values":
        """Return a range or choices that include the value."""
        if self.choices and value not in self.choices:
            return replace(self, choices=(*self.choices, value))
        if self.grid:
            grid = list(self.grid)
            if value not in grid:
                bisect.insort(grid, value)
            ends = sorted([self.low, self.high, value])
            return replace(self, grid=tuple(grid), low=ends[0], high=ends[-1])
        if self.is_range and (value > 0 or not self.log):
            return replace(self, low=min(self.low, value), high=max(self.high, value))
        return self

    def nearest(self, value: Any) -> Any:
        """Return the value in the form that the sampler draws, moved into the range."""
        if self.choices:
            return to_json(value if value in self.choices else self.choices[0])
        nearest = min(max(value, self.low), self.high)
        return self.grid.index(nearest) if self.grid else nearest

    def suggest(self, suggestion: Any, key: str) -> Any:
        """Draw a value for a trial of Optuna."""
        if self.choices:
            # Optuna takes no lists as choices.
            return json.loads(suggestion.suggest_categorical(key, list(map(to_json, self.choices))))
        if not self.is_range:
            return self.fixed
        if self.grid:
            low, high = self.grid.index(self.low), self.grid.index(self.high)
            return self.grid[suggestion.suggest_int(key, low, high)]
        suggest = suggestion.suggest_int if self.integer else suggestion.suggest_float
        return suggest(key, self.low, self.high, log=self.log)

    def edges(self, value: Any) -> tuple[bool, bool]:
        """Return whether a value is at the lower and at the upper edge, if these can be moved."""
        if self.grid:
            return (
                value <= self.low and self.low > self.grid[0],
                value >= self.high and self.high < self.grid[-1],
            )
        if self.log and value <= 0:
            return False, False
        scale = math.log if self.log else float
        low, high = scale(self.low), scale(self.high)
        margin = 0.0 if self.integer else EDGE * (high - low)
        below = self.low > self.min and scale(value) <= low + margin
        above = self.high < self.max and scale(value) >= high - margin
        return below, above

    def is_limit(self, value: Any) -> bool:
        """Return whether a range cannot be widened beyond the value."""
        limits = (self.grid[0], self.grid[-1]) if self.grid else (self.min, self.max)
        return value in limits

    def widened(self, value: Any) -> "Values":
        """Return a range with the value inside, not at an edge that can be moved."""
        below, above = self.edges(value)
        low, high = self.low, self.high
        if self.grid:
            return replace(
                self,
                low=self.grid[self.grid.index(low) - below],
                high=self.grid[self.grid.index(high) + above],
            )
        step = (high - low) / 2
        lower = low / WIDENING_FACTOR if self.log else low - step
        higher = high * WIDENING_FACTOR if self.log else high + step
        if self.integer:
            lower, higher = math.floor(lower), math.ceil(higher)
        wide = replace(
            self,
            low=max(lower, self.min) if below else low,
            high=min(higher, self.max) if above else high,
        )
        return self if wide == self else wide.widened(value)


Space = Mapping[str, Values]
"""By the names of settings; settings that are chosen together are one key, "a, b"."""


@cache
def spaces() -> dict[str, Space]:
    """Return the search spaces of all methods."""
    return {
        method: {key: Values(**options) for key, options in space.items()}
        for method, space in package_toml("duck.methods", "spaces.toml").items()
    }


def space_of(method: str) -> Space:
    """Return the search space of a method."""
    METHODS[method]
    if method not in spaces():
        raise BadInput(
            f"{method} has nothing to tune. Methods with a search space: {', '.join(spaces())}."
        )
    return spaces()[method]


def settings_in(space: Space, method: Method) -> Settings:
    """Return the values of a method's settings that are in the space."""
    return {name: plain(getattr(method, name)) for name in ", ".join(space).split(", ")}


def plain(value: Any) -> Any:
    """Return a value as in JSON, with lists for tuples."""
    return list(value) if isinstance(value, tuple) else value


def value_of(settings: Settings, key: str) -> Any:
    """Return the value of a key: a list for several settings that are chosen together."""
    names = key.split(", ")
    return [settings[name] for name in names] if len(names) > 1 else settings[key]


def by_name(values: Settings) -> Settings:
    """Return settings by their own names, from values by keys of a space."""
    settings: Settings = {}
    for key, value in values.items():
        names = key.split(", ")
        settings |= dict(zip(names, value, strict=True)) if len(names) > 1 else {key: value}
    return settings


def covering(space: Space, settings: Settings) -> Space:
    """Return the space with ranges and choices that include these settings."""
    return {key: values.covering(value_of(settings, key)) for key, values in space.items()}
