"""Plots for print: PNG and PDF files, drawn with matplotlib."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from duck import files
from duck.errors import MissingExtra
from duck.report.plots import (
    BAND_OPACITY,
    BLUE,
    INK,
    MUTED,
    PAPER,
    REPORT_MARK,
    VERMILION,
    Axis,
    Band,
    Cells,
    Contours,
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
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

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
    ".png": {"Software": REPORT_MARK},
    ".pdf": {"Creator": REPORT_MARK, "CreationDate": None},
}
"""Without a date: the same runs give the same file."""
PANEL_WIDTH = 3.2
"""Inches."""
SINGLE_PANEL_WIDTH = 4.8
"""Inches of a panel that is alone in its row."""
MAX_COLUMNS = 3
PIXELS_PER_INCH = 115
"""Converts the height of a panel on the page to inches in print."""


def save_figure(plot: Plot, folder: Path) -> list[Path]:
    """Write NAME.png and NAME.pdf into the folder and return the paths."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra(
            "Figures for print need matplotlib: pip install 'duck-unlearning[figures]'"
        ) from error
    paths = [folder / f"{plot.name}{suffix}" for suffix in METADATA]
    with matplotlib.rc_context(STYLE):
        figure = _make_figure(plot)
        for path in paths:
            files.check_replaceable(path, REPORT_MARK.encode())
            with files.writing(path) as file:
                figure.savefig(file, dpi=200, metadata=METADATA[path.suffix])
    return paths


def _make_figure(plot: Plot) -> "Figure":
    from matplotlib.figure import Figure

    row_count = math.ceil(len(plot.panels) / (plot.columns or MAX_COLUMNS))
    # Four panels are two rows of two.
    columns = plot.columns or math.ceil(len(plot.panels) / row_count)
    rows = [plot.panels[row * columns : (row + 1) * columns] for row in range(row_count)]
    heights = [max(panel.height for panel in row) / PIXELS_PER_INCH for row in rows]
    width = PANEL_WIDTH if columns > 1 else SINGLE_PANEL_WIDTH
    if all(panel.square for panel in plot.panels):
        width = heights[0]
    figure = Figure(figsize=(width * columns, sum(heights) + 0.5), layout="constrained")
    all_axes = figure.subplots(row_count, columns, squeeze=False).flatten().tolist()
    for axes, panel in zip(all_axes, plot.panels, strict=False):
        _draw_panel(axes, panel)
    for axes in all_axes[len(plot.panels) :]:
        axes.set_axis_off()
    _draw_legend(figure, plot)
    figure.suptitle(_literal(plot.title), fontsize=9, wrap=True)
    return figure


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    axes.set_title(_literal(panel.title))
    for mark in panel.layers:
        _draw_mark(axes, mark, panel.y)
    if panel.square:
        axes.spines[:].set(visible=True, color=COLORS[MUTED], linewidth=0.5)
    _draw_axis(axes, panel.x, "x")
    _draw_axis(axes, panel.y, "y")


def _draw_axis(axes: "Axes", axis: Axis, name: str) -> None:
    drawn_axis: Any = axes.xaxis if name == "x" else axes.yaxis
    drawn_axis.set_label_text(_literal(axis.label))
    if axis.log:
        axes.set(**{f"{name}scale": "log"})
    low, high = (-0.5, len(axis.ticks) - 0.5) if axis.ticks else (axis.low, axis.high)
    if low is not None and high is not None:
        axes.set(**{f"{name}lim": (high, low) if axis.is_reversed else (low, high)})
    if axis.log:
        ticks = log_ticks(axis)
        drawn_axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        drawn_axis.set_ticks([], minor=True)
    if axis.ticks:
        names = [_literal(text) for text in axis.ticks]
        rotation = {"rotation": 90} if name == "x" and max(map(len, axis.ticks)) > 3 else {}
        drawn_axis.set_ticks(range(len(names)), names, **rotation)
    if axis.hidden:
        drawn_axis.set_ticks([])
    if axis.integers_only:
        drawn_axis.get_major_locator().set_params(integer=True)


def _draw_mark(axes: "Axes", mark: Mark, y: Axis) -> None:
    match mark:
        case Line():
            _draw_line(axes, mark)
        case Points():
            _draw_points(axes, mark)
        case Band():
            edges = band_edges(mark, y)
            color = _color(mark.color)
            axes.fill_between(mark.x, *edges, color=color, alpha=BAND_OPACITY, linewidth=0)
        case Cells():
            _draw_cells(axes, mark)
        case Contours():
            _draw_contours(axes, mark)
        case Picture():
            axes.imshow(np.array(mark.pixels) / 255, aspect="equal")


def _draw_line(axes: "Axes", mark: Line) -> None:
    axes.plot(
        _numbers(mark.x),
        _numbers(mark.y),
        ":" if mark.dashed else "-",
        color=_color(mark.color),
        lw=1.2,
        marker="o" if mark.show_points else "",
        ms=3,
    )


def _draw_points(axes: Any, mark: Points) -> None:
    color = _color(mark.color)
    x = _numbers(mark.x)
    y = _numbers(mark.y)
    axes.scatter(
        x,
        y,
        s=(0.55 * mark.size) ** 2,
        facecolors=COLORS[PAPER] if mark.hollow else color,
        edgecolors=color,
        marker=MARKERS[mark.symbol],
        linewidths=0.9 if mark.hollow else 0,
        zorder=3,
    )
    for interval, values, side in ((mark.x_interval, x, "xerr"), (mark.y_interval, y, "yerr")):
        if interval is not None:
            lengths = _error_lengths(values, *interval)
            axes.errorbar(x, y, fmt="none", ecolor=color, elinewidth=0.8, **{side: lengths})


def _error_lengths(values: list[float], low: Numbers, high: Numbers) -> list[list[float]]:
    return [
        [max(0.0, value - end) for value, end in zip(values, _numbers(low), strict=True)],
        [max(0.0, end - value) for value, end in zip(values, _numbers(high), strict=True)],
    ]


def _draw_cells(axes: "Axes", mark: Cells) -> None:
    values = [_numbers(row) for row in mark.values]
    colors = ["#2166AC", "#FFFFFF", "#B2182B"] if mark.signed else ["#FFFFFF", BLUE]
    low = -mark.full_value if mark.signed else 0
    axes.imshow(values, cmap=_scale(colors), vmin=low, vmax=mark.full_value, aspect="equal")
    for row, texts in enumerate(mark.texts):
        for column, text in enumerate(texts):
            color = "white" if values[row][column] > 0.6 else "black"
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 5, "color": color}
            axes.text(column, row, _literal(text), **style)


def _draw_contours(axes: "Axes", mark: Contours) -> None:
    lowest = min(min(row) for row in mark.z)
    highest = max(max(row) for row in mark.z)
    steps = range(math.floor(lowest / mark.step), math.ceil(highest / mark.step) + 1)
    levels = [step * mark.step for step in steps]
    scale = _scale([VERMILION, "#999999", BLUE])
    lines = axes.contour(mark.x, mark.y, mark.z, levels=levels, cmap=scale, linewidths=0.7)
    for label in axes.clabel(lines, fontsize=6):
        # Other lines can cross a label.
        label.set(bbox={"facecolor": COLORS[PAPER], "alpha": 0.8, "pad": 0.5, "lw": 0}, zorder=2.5)


def _scale(colors: list[str]) -> "LinearSegmentedColormap":
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("scale", colors)


def _draw_legend(figure: "Figure", plot: Plot) -> None:
    if not plot.legend:
        return
    handles = [_legend_handle(color, symbol) for color, symbol in plot.legend.values()]
    names = [_literal(name) for name in plot.legend]
    # A letter of 7 points is about 0.055 inches wide; the symbol and the gaps need 0.5 inches.
    room = int(figure.get_figwidth() / (0.055 * max(map(len, names)) + 0.5))
    columns = max(1, min(room, 6, len(handles)))
    style: dict[str, Any] = {"ncols": columns, "frameon": False, "fontsize": 7}
    figure.legend(handles, names, loc="outside lower center", **style)


def _legend_handle(color: str, symbol: str) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if symbol == "fill":
        return Patch(color=_color(color), alpha=2 * BAND_OPACITY, linewidth=0)
    marker = MARKERS.get(symbol.removesuffix("-open"), "")
    face = COLORS[PAPER] if symbol.endswith("-open") else _color(color)
    style: dict[str, Any] = {"marker": marker, "ms": 4, "ls": LINES.get(symbol, "")}
    return Line2D([], [], color=_color(color), markerfacecolor=face, **style)


def _literal(text: str) -> str:
    """Escape dollar signs, which would start a formula."""
    return text.replace("$", r"\$")


def _color(name: str) -> str:
    return COLORS.get(name, name)


def _numbers(values: Numbers) -> list[float]:
    return [math.nan if value is None else value for value in values]
