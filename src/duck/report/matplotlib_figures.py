"""A plot for paper: PNG and PDF, drawn by matplotlib without a screen."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duck import files
from duck.errors import MissingExtra
from duck.report.plots import (
    BAND_OPACITY,
    BLUE,
    INK,
    MARK,
    MUTED,
    PAPER,
    VERMILION,
    Axis,
    Band,
    Cells,
    Heights,
    Line,
    Mark,
    Numbers,
    Panel,
    Picture,
    Plot,
    Points,
    band_edges,
    log_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {INK: "#000000", MUTED: "#767676", PAPER: "#FFFFFF"}
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P"}
LINES = {"line": "-", "dots": ":"}
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,
}
METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": MARK},
    ".pdf": {"Creator": MARK, "CreationDate": None},
}
"""No date inside: the same runs give the same file."""
WIDTH, ALONE, WIDEST = 3.2, 4.8, 3
"""Inches of a panel, also where it is the only one; panels beside each other."""


def save(plot: Plot, folder: Path) -> list[Path]:
    """NAME.png and NAME.pdf in the folder."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra(
            "Figures for print need matplotlib: pip install 'duck-unlearning[figures]'"
        ) from error
    rows = math.ceil(len(plot.panels) / (plot.columns or WIDEST))
    columns = plot.columns or math.ceil(len(plot.panels) / rows)  # four panels are two rows of two
    with matplotlib.rc_context(STYLE):
        heights = [
            max(panel.height for panel in plot.panels[row * columns : (row + 1) * columns]) / 115
            for row in range(rows)
        ]
        width = (
            heights[0]
            if all(panel.square for panel in plot.panels)
            else ALONE
            if columns == 1
            else WIDTH
        )
        figure = Figure(figsize=(width * columns, sum(heights) + 0.5), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
        for place, panel in zip(axes, plot.panels, strict=False):
            _draw(place, panel)
        for place in axes[len(plot.panels) :]:
            place.set_axis_off()
        _legend(figure, plot)
        figure.suptitle(_literal(plot.title), fontsize=9, wrap=True)
        places = [folder / f"{plot.name}{suffix}" for suffix in METADATA]
        for place in places:
            files.check_replaceable(place, MARK.encode())
            with files.writing(place) as file:
                figure.savefig(file, dpi=200, metadata=METADATA[place.suffix])
    return places


def _draw(place: "Axes", panel: Panel) -> None:
    place.set_title(_literal(panel.title))
    for mark in panel.layers:
        _mark(place, mark, panel.y)
    if panel.square:
        place.spines[:].set(visible=True, color=COLORS[MUTED], linewidth=0.5)
    _axis(place, panel.x, "x")
    _axis(place, panel.y, "y")


def _axis(place: "Axes", axis: Axis, name: str) -> None:
    which: Any = place.xaxis if name == "x" else place.yaxis
    which.set_label_text(_literal(axis.label))
    if axis.log:
        place.set(**{f"{name}scale": "log"})
    low, high = (-0.5, len(axis.ticks) - 0.5) if axis.ticks else (axis.low, axis.high)
    if low is not None and high is not None:
        place.set(**{f"{name}lim": (high, low) if axis.down else (low, high)})
    if axis.log:
        which.set_ticks(log_ticks(axis), [f"{tick:g}" for tick in log_ticks(axis)])
        which.set_ticks([], minor=True)
    if axis.ticks:
        turn = {"rotation": 90} if name == "x" and max(map(len, axis.ticks)) > 3 else {}
        which.set_ticks(range(len(axis.ticks)), [_literal(text) for text in axis.ticks], **turn)
    if axis.hidden:
        which.set_ticks([])
    if axis.whole:
        which.get_major_locator().set_params(integer=True)


def _mark(place: "Axes", mark: Mark, y: Axis) -> None:
    match mark:
        case Line():
            style = ":" if mark.dashed else "-"
            place.plot(
                _numbers(mark.x),
                _numbers(mark.y),
                style,
                color=_color(mark.color),
                lw=1.2,
                marker="o" if mark.marked else "",
                ms=3,
            )
        case Points():
            _points(place, mark)
        case Band():
            edges, color = band_edges(mark, y), _color(mark.color)
            place.fill_between(mark.x, *edges, color=color, alpha=BAND_OPACITY, linewidth=0)
        case Cells():
            _cells(place, mark)
        case Heights():
            _heights(place, mark)
        case Picture():
            place.imshow(
                [[[value / 255 for value in pixel] for pixel in row] for row in mark.pixels],
                aspect="equal",
            )


def _points(place: Any, mark: Points) -> None:
    color = _color(mark.color)
    x, y = _numbers(mark.x), _numbers(mark.y)
    face, width = (COLORS[PAPER], 0.9) if mark.hollow else (color, 0)
    place.scatter(
        x, y, s=(0.55 * mark.size) ** 2, facecolors=face, edgecolors=color,
        marker=MARKERS[mark.symbol], linewidths=width, zorder=3,
    )  # fmt: skip
    for interval, values, side in ((mark.x_interval, x, "xerr"), (mark.y_interval, y, "yerr")):
        if interval is not None:
            low, high = map(_numbers, interval)
            reach = [
                [max(0.0, value - end) for value, end in zip(values, low, strict=True)],
                [max(0.0, end - value) for value, end in zip(values, high, strict=True)],
            ]
            place.errorbar(x, y, fmt="none", ecolor=color, elinewidth=0.8, **{side: reach})


def _cells(place: "Axes", mark: Cells) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    values = [_numbers(row) for row in mark.values]
    ends = ["#2166AC", "#FFFFFF", "#B2182B"] if mark.signed else ["#FFFFFF", BLUE]
    scale = LinearSegmentedColormap.from_list("cells", ends)
    place.imshow(
        values, cmap=scale, vmin=-mark.most if mark.signed else 0, vmax=mark.most, aspect="equal"
    )
    for row, texts in enumerate(mark.texts):
        for column, text in enumerate(texts):
            dark = values[row][column] > 0.6
            place.text(
                column,
                row,
                _literal(text),
                ha="center",
                va="center",
                fontsize=5,
                color="white" if dark else "black",
            )


def _heights(place: "Axes", mark: Heights) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    flat = [value for row in mark.z for value in row]
    low, high = math.floor(min(flat) / mark.step), math.ceil(max(flat) / mark.step)
    scale = LinearSegmentedColormap.from_list("heights", [VERMILION, "#999999", BLUE])
    levels = [step * mark.step for step in range(low, high + 1)]
    lines = place.contour(mark.x, mark.y, mark.z, levels=levels, cmap=scale, linewidths=0.7)
    for label in place.clabel(lines, fontsize=6):
        # Other lines may cross a label.
        label.set(bbox={"facecolor": COLORS[PAPER], "alpha": 0.8, "pad": 0.5, "lw": 0}, zorder=2.5)


def _legend(figure: Any, plot: Plot) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if not plot.legend:
        return
    handles: list[Any] = []
    for color, symbol in plot.legend.values():
        if symbol == "fill":
            handles.append(Patch(color=_color(color), alpha=2 * BAND_OPACITY, linewidth=0))
        else:
            marker = MARKERS.get(symbol.removesuffix("-open"), "")
            face = COLORS[PAPER] if symbol.endswith("-open") else _color(color)
            style: dict[str, Any] = {"marker": marker, "ms": 4, "ls": LINES.get(symbol, "")}
            handles.append(Line2D([], [], color=_color(color), markerfacecolor=face, **style))
    names = [_literal(name) for name in plot.legend]
    # A letter of 7 points is about 0.055 inches wide; the symbol and the gaps need 0.5 inches.
    room = int(figure.get_figwidth() / (0.055 * max(map(len, names)) + 0.5))
    columns = max(1, min(room, 6, len(handles)))
    place = "outside lower center"
    figure.legend(handles, names, loc=place, ncols=columns, frameon=False, fontsize=7)


def _literal(text: str) -> str:
    """A dollar sign would begin a formula."""
    return text.replace("$", r"\$")


def _color(name: str) -> str:
    return COLORS.get(name, name)


def _numbers(values: Numbers) -> list[float]:
    return [math.nan if value is None else value for value in values]
