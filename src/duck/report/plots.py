"""A plot as data: what is drawn, in which words. How it is drawn, on a page or on paper, is for others to say."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Numbers = Sequence[float | None]
MARK = "duck-unlearning report"
"""In every page and figure: a file without it is not ours, and is not replaced."""

# The colours that Okabe and Ito chose for eyes of every kind. Ink and the like follow the page, light or dark.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BROWN = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#8C6D31",
)
INK, MUTED, PAPER = "ink", "muted", "paper"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, BROWN)
Symbol = Literal["circle", "square", "diamond", "triangle-up", "cross"]
SYMBOLS: tuple[Symbol, ...] = ("circle", "square", "diamond", "triangle-up", "cross")
BAND_OPACITY = 0.18
MODELS = {"original": MUTED, "unlearned": BLUE, "retrained": ORANGE}
"""A colour for each role, the same in every plot."""


@dataclass(frozen=True)
class Line:
    """Points in order, joined."""

    name: str
    x: Numbers
    y: Numbers
    color: str
    dashed: bool = False
    marked: bool = False
    """Show the points, too."""


@dataclass(frozen=True)
class Points:
    """Points on their own, with intervals where these are known."""

    name: str
    x: Numbers
    y: Numbers
    color: str
    symbol: Symbol = "circle"
    size: float = 9
    texts: Sequence[str] = ()
    """What each point is, in words; a single text is for all of them."""
    x_interval: tuple[Numbers, Numbers] | None = None
    y_interval: tuple[Numbers, Numbers] | None = None
    hollow: bool = False
    """The outline of the symbol, filled with the colour of the paper."""


@dataclass(frozen=True)
class Band:
    """The area between two curves over the same x, in a light colour, under all other marks."""

    name: str
    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    color: str


@dataclass(frozen=True)
class Cells:
    """A table of numbers as colours; the first row is on top."""

    values: Sequence[Numbers]
    texts: Sequence[Sequence[str]] = ()
    unit: str = ""
    signed: bool = False
    """Red raises, blue lowers, white is nought; else from paper to blue over 0 to 1."""
    most: float = 1.0
    """The value that has the full colour."""


@dataclass(frozen=True)
class Heights:
    """Lines of equal height over a plane."""

    x: Sequence[float]
    y: Sequence[float]
    z: Sequence[Sequence[float]]
    step: float
    unit: str


@dataclass(frozen=True)
class Picture:
    """An image; the first row is on top."""

    pixels: Sequence[Sequence[Sequence[int]]]
    """Red, green and blue of each, 0 to 255."""


Mark = Line | Points | Band | Cells | Heights | Picture


@dataclass(frozen=True)
class Axis:
    """What it measures, with its unit."""

    label: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    ticks: Sequence[str] = ()
    """Names at 0, 1, 2, ... in place of numbers."""
    down: bool = False
    """0 is on top."""
    hidden: bool = False
    """Nothing to read off: no ticks."""
    whole: bool = False
    """Only whole numbers mean something."""


def log_ticks(axis: Axis) -> list[float]:
    """Powers of ten between the ends and, where these are near each other, twice and five times them."""
    low, high = axis.low or 1e-3, axis.high or 1.0
    steps = (1, 2, 5) if high < 300 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [
        tick
        for power in powers
        for step in steps
        if low <= (tick := float(f"{step}e{power}")) <= high
    ]


def band_edges(band: Band, axis: Axis) -> tuple[list[float], list[float]]:
    """The lower and the upper curve. A log axis has no 0: lower values are moved to its minimum."""
    least = axis.low if axis.log and axis.low is not None else -math.inf
    low, high = ([max(value, least) for value in edge] for edge in (band.low, band.high))
    return low, high


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    marks: Sequence[Mark]
    x: Axis
    y: Axis
    height: int = 320
    """In pixels."""

    @property
    def layers(self) -> list[Mark]:
        """The marks from back to front: bands would hide what they cover."""
        return sorted(self.marks, key=lambda mark: not isinstance(mark, Band))

    @property
    def square(self) -> bool:
        """Its pixels are those of an image, as wide as high."""
        return any(
            isinstance(mark, Picture) or (isinstance(mark, Cells) and mark.signed)
            for mark in self.marks
        )


@dataclass(frozen=True)
class Plot:
    """What a figure shows, what is seen in it, and the same in words for those who cannot see it."""

    name: str
    title: str
    caption: str
    alt: str
    panels: Sequence[Panel]
    columns: int = 0
    """Panels that belong beside each other, where there is room; 0: as many as fit."""

    @property
    def legend(self) -> dict[str, tuple[str, str]]:
        """Name -> colour and symbol, or `line`, `dots` or `fill`, of all panels together.

        A hollow symbol has `-open` at its end.
        """
        named: dict[str, tuple[str, str]] = {}
        for mark in (mark for panel in self.panels for mark in panel.marks):
            if not isinstance(mark, Line | Points | Band) or not mark.name:
                continue
            look = mark.color, _legend_symbol(mark)
            known = named.get(mark.name, look)
            if known[0] != mark.color:
                # A name that many colours share is shown in none of them.
                named[mark.name] = MUTED, "circle"
            else:
                # A name stands for its line rather than the band around it, and its full symbol.
                is_lesser = isinstance(mark, Band) or (isinstance(mark, Points) and mark.hollow)
                named[mark.name] = known if is_lesser else look
        return named


def _legend_symbol(mark: Line | Points | Band) -> str:
    match mark:
        case Points():
            return f"{mark.symbol}-open" if mark.hollow else mark.symbol
        case Band():
            return "fill"
        case Line():
            return "dots" if mark.dashed else "line"
