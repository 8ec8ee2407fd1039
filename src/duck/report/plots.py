"""Plots as data: marks, axes and texts. Other modules draw them for the page or for print."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

Numbers = Sequence[float | None]
REPORT_MARK = "duck-unlearning report"
"""Every page and figure contains it. A file without it is not ours and is not replaced."""

# The colours of Okabe and Ito, which colour-blind readers can distinguish.
BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
BROWN = "#8C6D31"
# These names stand for colours of the page, which differ in its light and its dark scheme.
INK = "ink"
MUTED = "muted"
PAPER = "paper"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, BROWN)
Symbol = Literal["circle", "square", "diamond", "triangle-up", "cross"]
SYMBOLS: tuple[Symbol, ...] = ("circle", "square", "diamond", "triangle-up", "cross")
BAND_OPACITY = 0.18
MODELS = {"original": MUTED, "unlearned": BLUE, "retrained": ORANGE}
"""The colour of each model, the same in every plot."""


@dataclass(frozen=True)
class Line:
    """A line through points."""

    name: str
    x: Numbers
    y: Numbers
    color: str
    dashed: bool = False
    show_points: bool = False


@dataclass(frozen=True)
class Points:
    """Points without a line, with intervals if they are known."""

    name: str
    x: Numbers
    y: Numbers
    color: str
    symbol: Symbol = "circle"
    size: float = 9
    texts: Sequence[str] = ()
    """A text for each point, or one text for all of them."""
    x_interval: tuple[Numbers, Numbers] | None = None
    y_interval: tuple[Numbers, Numbers] | None = None
    hollow: bool = False
    """Draw the outline of the symbol only."""


@dataclass(frozen=True)
class Band:
    """The area between two curves over the same x, in a light colour behind all other marks."""

    name: str
    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    color: str


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


@dataclass(frozen=True)
class Contours:
    """Lines of equal value over a plane."""

    x: Sequence[float]
    y: Sequence[float]
    z: Sequence[Sequence[float]]
    step: float
    unit: str


@dataclass(frozen=True)
class Picture:
    """An image. The first row is at the top."""

    pixels: Sequence[Sequence[Sequence[int]]]
    """Red, green and blue of each pixel, 0 to 255."""


Mark = Line | Points | Band | Cells | Contours | Picture


@dataclass(frozen=True)
class Axis:
    """An axis. Its label names the quantity and the unit."""

    label: str
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


def log_ticks(axis: Axis) -> list[float]:
    """Return the powers of ten on an axis; on a short axis also 2 and 5 times them."""
    low, high = axis.low or 1e-3, axis.high or 1.0
    steps = (1, 2, 5) if high < 300 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step}e{power}") for power, step in product(powers, steps)]
    return [tick for tick in ticks if low <= tick <= high]


def band_edges(band: Band, axis: Axis) -> tuple[list[float], list[float]]:
    """Return the lower and the upper curve. A log axis has no 0: values are cut at its minimum."""
    least = axis.low if axis.log and axis.low is not None else -math.inf
    low = [max(value, least) for value in band.low]
    high = [max(value, least) for value in band.high]
    return low, high


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
    def layers(self) -> list[Mark]:
        """The marks from back to front. Bands come first because they would hide other marks."""
        return sorted(self.marks, key=lambda mark: not isinstance(mark, Band))

    @property
    def square(self) -> bool:
        """Whether it shows an image, whose pixels are as wide as high."""
        return any(
            isinstance(mark, Picture) or (isinstance(mark, Cells) and mark.signed)
            for mark in self.marks
        )


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
        """Name -> colour and symbol, or `line`, `dots` or `fill`, over all panels.

        A hollow symbol ends in `-open`.
        """
        looks: dict[str, tuple[str, str]] = {}
        for panel in self.panels:
            for mark in panel.marks:
                if isinstance(mark, Line | Points | Band) and mark.name:
                    looks[mark.name] = _legend_look(mark, looks.get(mark.name))
        return looks


def _legend_look(mark: Line | Points | Band, known: tuple[str, str] | None) -> tuple[str, str]:
    """Return the colour and symbol of a name after one more mark with that name."""
    look = mark.color, _legend_symbol(mark)
    if known is None:
        return look
    if known[0] != mark.color:
        # The marks of this name have several colours.
        return MUTED, "circle"
    # The legend shows a line rather than its band, and a full symbol rather than a hollow one.
    is_secondary = isinstance(mark, Band) or (isinstance(mark, Points) and mark.hollow)
    return known if is_secondary else look


def _legend_symbol(mark: Line | Points | Band) -> str:
    match mark:
        case Points():
            return f"{mark.symbol}-open" if mark.hollow else mark.symbol
        case Band():
            return "fill"
        case Line():
            return "dots" if mark.dashed else "line"
