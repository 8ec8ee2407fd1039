"""Plots for print: PNG and PDF files, drawn with matplotlib."""

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from duck import files
from duck.errors import MissingExtra
from duck.report import plots, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {styles.INK: "#000000", styles.MUTED: "#767676", styles.PAPER: "#FFFFFF"}
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P"}
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,
    # A dollar sign would start a formula.
    "text.parse_math": False,
}
METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": plots.REPORT_MARK},
    ".pdf": {"Creator": plots.REPORT_MARK, "CreationDate": None},
}
"""Without a date: the same runs give the same file."""
PANEL_WIDTH = 3.2
"""Inches."""
SINGLE_PANEL_WIDTH = 4.8
"""Inches of a panel that is alone in its row."""
MAX_COLUMNS = 3
PIXELS_PER_INCH = 115
"""Converts the height of a panel on the page to inches in print."""


def save_figure(plot: plots.Plot, folder: Path) -> list[Path]:
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
            files.check_replaceable(path, plots.REPORT_MARK.encode())
            with files.writing(path) as file:
                figure.savefig(file, dpi=200, metadata=METADATA[path.suffix])
    return paths


def _make_figure(plot: plots.Plot) -> "Figure":
    from matplotlib.figure import Figure

    row_count = math.ceil(len(plot.panels) / (plot.columns or MAX_COLUMNS))
    # Four panels are two rows of two.
    columns = plot.columns or math.ceil(len(plot.panels) / row_count)
    rows = [plot.panels[row * columns : (row + 1) * columns] for row in range(row_count)]
    heights = [max(panel.height for panel in row) / PIXELS_PER_INCH for row in rows]
    width = PANEL_WIDTH if columns > 1 else SINGLE_PANEL_WIDTH
    if all(panel.is_image for panel in plot.panels):
        width = heights[0]
    figure = Figure(figsize=(width * columns, sum(heights) + 0.5), layout="constrained")
    for place, panel in enumerate(plot.panels, 1):
        _draw_panel(figure.add_subplot(row_count, columns, place), panel)
    _draw_legend(figure)
    # About 13 letters of 9 points fit in an inch. The wrap of matplotlib would parse formulas.
    letters = int(13 * figure.get_figwidth())
    figure.suptitle(textwrap.fill(plot.title, letters), fontsize=9)
    return figure


def _draw_panel(axes: "Axes", panel: plots.Panel) -> None:
    axes.set_title(panel.title)
    for mark in panel.marks:
        _draw_mark(axes, mark)
    if panel.is_image:
        axes.spines[:].set(visible=True, color=COLORS[styles.MUTED], linewidth=0.5)
    _draw_axis(axes, panel.x, "x")
    _draw_axis(axes, panel.y, "y")


def _draw_axis(axes: "Axes", axis: plots.Axis, name: str) -> None:
    drawn_axis: Any = axes.xaxis if name == "x" else axes.yaxis
    drawn_axis.set_label_text(axis.label)
    if axis.log:
        axes.set(**{f"{name}scale": "log"})
    if axis.ends:
        axes.set(**{f"{name}lim": axis.ends})
    if axis.log:
        drawn_axis.set_ticks(axis.log_ticks, [f"{tick:g}" for tick in axis.log_ticks])
        drawn_axis.set_ticks([], minor=True)
    if axis.ticks:
        rotation = {"rotation": 90} if name == "x" and max(map(len, axis.ticks)) > 3 else {}
        drawn_axis.set_ticks(range(len(axis.ticks)), axis.ticks, **rotation)
    if axis.hidden:
        drawn_axis.set_ticks([])
    if axis.integers_only:
        drawn_axis.get_major_locator().set_params(integer=True)


def _draw_mark(axes: "Axes", mark: plots.Mark) -> None:
    match mark:
        case plots.Line():
            style: dict[str, Any] = {"ls": ":" if mark.dashed else "-", "label": mark.name}
            style |= {"lw": 0.5 if mark.label else 1.2, "color": _color(mark.color)}
            x, y = _numbers(mark.x), _numbers(mark.y)
            axes.plot(x, y, marker="o" if mark.show_points else "", ms=3, **style)
            if mark.label:
                axes.text(x[1], y[1], mark.label, color=style["color"], fontsize=6)
        case plots.Points():
            _draw_points(axes, mark)
        case plots.Band():
            style = {"color": _color(mark.color), "alpha": styles.BAND_OPACITY, "linewidth": 0}
            axes.fill_between(mark.x, mark.low, mark.high, label=mark.name, zorder=0, **style)
        case plots.Cells():
            _draw_cells(axes, mark)


def _draw_points(axes: "Axes", mark: plots.Points) -> None:
    color = _color(mark.color)
    x = _numbers(plots.centres(mark.x))
    y = _numbers(plots.centres(mark.y))
    axes.scatter(
        x,
        y,
        s=(0.55 * mark.size) ** 2,
        facecolors=COLORS[styles.PAPER] if mark.hollow else color,
        edgecolors=color,
        marker=MARKERS[mark.symbol],
        linewidths=0.9 if mark.hollow else 0,
        zorder=3,
        label=mark.name,
    )
    bars = {"xerr": plots.error_bars(mark.x), "yerr": plots.error_bars(mark.y)}
    axes.errorbar(x, y, fmt="none", ecolor=color, elinewidth=0.8, **bars)  # type: ignore[arg-type]


def _draw_cells(axes: "Axes", mark: plots.Cells) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colors = styles.SIGNED_SCALE if mark.signed else styles.SHARE_SCALE
    scale = LinearSegmentedColormap.from_list("scale", list(map(_color, colors)))
    values = np.array(mark.values, float)
    low = -mark.full_value if mark.signed else 0
    axes.imshow(values, cmap=scale, vmin=low, vmax=mark.full_value, aspect="equal")
    for row, texts in enumerate(mark.texts):
        for column, text in enumerate(texts):
            color = "white" if values[row, column] > 0.6 else "black"
            axes.text(column, row, text, color=color, ha="center", va="center", fontsize=5)


def _draw_legend(figure: "Figure") -> None:
    """Draw a legend below all panels. The first mark of a name stands for all of them."""
    from matplotlib.collections import PathCollection

    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    if handles:
        # A letter of 7 points is about 0.055 inches wide; the symbol and the gaps need 0.5 inches.
        room = int(figure.get_figwidth() / (0.055 * max(map(len, handles)) + 0.5))
        style: dict[str, Any] = {"ncols": max(1, min(room, 6)), "frameon": False, "fontsize": 7}
        legend = figure.legend(handles.values(), handles, loc="outside lower center", **style)
        for item in legend.legend_handles:
            if isinstance(item, PathCollection):
                item.set_sizes([16])  # points of a cloud are smaller


def _color(name: str) -> str:
    return COLORS.get(name, name)


def _numbers(values: plots.Numbers) -> npt.NDArray[np.float64]:
    return np.array(values, np.float64)
