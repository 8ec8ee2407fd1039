"""Plots as data: marks, axes and texts. Other modules draw them for the page or for print."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any

from duck.report.styles import Symbol
from duck.types import Estimate

Numbers = Sequence[float | None]
Values = Sequence[Estimate | float | None]
REPORT_MARK = "duck-unlearning report"
"""Every page and figure contains it. A file without it is not ours and is not replaced."""


@dataclass(frozen=True)
class Line:
    """A line through points."""

    name: str
    x: Numbers
    y: Numbers
    color: str
    dashed: bool = False
    show_points: bool = False
    label: str = ""
    """Text at the middle point. A line with a label is thin."""

    @property
    def legend_symbol(self) -> str:
        return "dots" if self.dashed else "line"


@dataclass(frozen=True)
class Points:
    """Points without a line. The intervals of estimates are error bars."""

    name: str
    x: Values
    y: Values
    color: str
    symbol: Symbol = "circle"
    size: float = 9
    texts: Sequence[str] = ()
    """A text for each point, or one text for all of them."""
    hollow: bool = False
    """Draw the outline of the symbol only."""

    @property
    def legend_symbol(self) -> str:
        return f"{self.symbol}-open" if self.hollow else self.symbol


@dataclass(frozen=True)
class Band:
    """The area between two curves over the same x, in a light colour behind all other marks."""

    name: str
    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    color: str
    legend_symbol = "fill"


@dataclass(frozen=True)
class Cells:
    """A table of numbers as colours. The first row is at the top."""

    values: Sequence[Numbers]
    texts: Sequence[Sequence[str]] = ()
    unit: str = ""
    signed: bool = False
    """Positive values are red and negative ones blue; otherwise 0 has the colour of the page and 1
    is blue."""
    full_value: float = 1.0
    """The value with the full colour."""


NamedMark = Line | Points | Band
Mark = NamedMark | Cells


@dataclass(frozen=True)
class Axis:
    """An axis. Its label names the quantity and the unit."""

    label: str = ""
    low: float | None = None
    high: float | None = None
    log: bool = False
    ticks: Sequence[str] = ()
    """Names at 0, 1, 2, ... instead of numbers."""
    is_reversed: bool = False
    """Whether values grow to the left or downwards."""
    hidden: bool = False
    """Whether ticks are left out."""
    integers_only: bool = False
    """Whether ticks are whole numbers only."""

    @property
    def ends(self) -> tuple[float, float] | None:
        """The values at the left or lower end and at the other; None if the data decide."""
        low, high = (-0.5, len(self.ticks) - 0.5) if self.ticks else (self.low, self.high)
        if low is None or high is None:
            return None
        return (high, low) if self.is_reversed else (low, high)

    @property
    def log_ticks(self) -> list[float]:
        """The powers of ten on a log axis; on a short axis also 2 and 5 times them."""
        low, high = self.low or 1e-3, self.high or 1.0
        steps = (1, 2, 5) if high < 300 * low else (1,)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [float(f"{step}e{power}") for power, step in product(powers, steps)]
        return [tick for tick in ticks if low <= tick <= high]


@dataclass(frozen=True)
class Panel:
    """Marks on one pair of axes."""

    title: str
    marks: Sequence[Mark]
    x: Axis
    y: Axis
    height: int = 320
    """In pixels."""

    @property
    def is_image(self) -> bool:
        """Whether it shows pixels, which are as wide as high."""
        return any(isinstance(mark, Cells) and mark.signed for mark in self.marks)


@dataclass(frozen=True)
class Plot:
    """A figure: its panels, a caption, and `alt`, a description for readers who cannot see it."""

    name: str
    title: str
    caption: str
    alt: str
    panels: Sequence[Panel]
    columns: int = 0
    """Panels in a row, if there is room; 0: as many as fit."""

    @property
    def legend(self) -> dict[str, tuple[str, str]]:
        """Name -> colour and symbol, or `line`, `dots` or `fill`, of the first mark of a name.

        A hollow symbol ends in `-open`.
        """
        styles: dict[str, tuple[str, str]] = {}
        for mark in chain.from_iterable(panel.marks for panel in self.panels):
            if isinstance(mark, NamedMark) and mark.name:
                styles.setdefault(mark.name, (mark.color, mark.legend_symbol))
        return styles


def row_points(name: str, values: Values, shift: float, *style: Any, **options: Any) -> Points:
    """Return a point for each row of a panel, a little above or below the middle of the row."""
    return Points(name, values, [row + shift for row in range(len(values))], *style, **options)


def row_panel(
    title: str, marks: Sequence[Mark], x: Axis, names: Sequence[str], row_height: int = 26
) -> Panel:
    """Return a panel with a row for each name."""
    rows = Axis(ticks=names, is_reversed=True)
    return Panel(title, marks, x, rows, row_height * len(names) + 90)


def percent(estimate: Estimate) -> Estimate:
    """Return a share and its interval in percent."""
    ends = (None if end is None else 100 * end for end in (estimate.low, estimate.high))
    return Estimate(100 * estimate.value, *ends)


def centres(values: Values) -> list[float | None]:
    """Return the values themselves, without their intervals."""
    return [value.value if isinstance(value, Estimate) else value for value in values]


def error_bars(values: Values) -> tuple[list[float], list[float]] | None:
    """Return how far the intervals reach below and above the values; None if there are none."""
    estimates = [one if isinstance(one, Estimate) else Estimate(0.0) for one in values]
    below = [0.0 if one.low is None else max(0.0, one.value - one.low) for one in estimates]
    above = [0.0 if one.high is None else max(0.0, one.high - one.value) for one in estimates]
    return (below, above) if any(below) or any(above) else None


def name_plots(anchor: str, plots: Iterable[Plot | None]) -> dict[str, Plot]:
    """Return the plots of a section by their names, and name them after the section."""
    return {
        plot.name: replace(plot, name=f"{anchor}-{plot.name}") for plot in plots if plot is not None
    }


def round_digits(value: float) -> float:
    """Round a coordinate to three digits, because a page has thousands of them."""
    return float(f"{value:.3g}")
