"""Plots for print: PNG and PDF files, drawn with matplotlib."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duck import files
from duck.errors import MissingExtra
from duck.report import looks, plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

COLORS = {looks.INK: "#000000", looks.MUTED: "#767676", looks.PAPER: "#FFFFFF"}
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
    _draw_legend(figure, plot)
    figure.suptitle(_literal(plot.title), fontsize=9, wrap=True)
    return figure


def _draw_panel(axes: "Axes", panel: plots.Panel) -> None:
    axes.set_title(_literal(panel.title))
    for mark in panel.layers:
        _draw_mark(axes, mark)
    if panel.is_image:
        axes.spines[:].set(visible=True, color=COLORS[looks.MUTED], linewidth=0.5)
    _draw_axis(axes, panel.x, "x")
    _draw_axis(axes, panel.y, "y")


def _draw_axis(axes: "Axes", axis: plots.Axis, name: str) -> None:
    drawn_axis: Any = axes.xaxis if name == "x" else axes.yaxis
    drawn_axis.set_label_text(_literal(axis.label))
    if axis.log:
        axes.set(**{f"{name}scale": "log"})
    if axis.ends:
        axes.set(**{f"{name}lim": axis.ends})
    if axis.log:
        drawn_axis.set_ticks(axis.log_ticks, [f"{tick:g}" for tick in axis.log_ticks])
        drawn_axis.set_ticks([], minor=True)
    if axis.ticks:
        names = [_literal(text) for text in axis.ticks]
        rotation = {"rotation": 90} if name == "x" and max(map(len, axis.ticks)) > 3 else {}
        drawn_axis.set_ticks(range(len(names)), names, **rotation)
    if axis.hidden:
        drawn_axis.set_ticks([])
    if axis.integers_only:
        drawn_axis.get_major_locator().set_params(integer=True)


def _draw_mark(axes: "Axes", mark: plots.Mark) -> None:
    match mark:
        case plots.Line():
            style = ":" if mark.dashed else "-"
            marker = "o" if mark.show_points else ""
            x, y, color = _numbers(mark.x), _numbers(mark.y), _color(mark.color)
            width = 0.5 if mark.label else 1.2
            axes.plot(x, y, style, color=color, lw=width, marker=marker, ms=3)
            if mark.label:
                axes.text(x[1], y[1], _literal(mark.label), color=color, fontsize=6)
        case plots.Points():
            _draw_points(axes, mark)
        case plots.Band():
            color = _color(mark.color)
            edges = mark.low, mark.high
            axes.fill_between(mark.x, *edges, color=color, alpha=looks.BAND_OPACITY, linewidth=0)
        case plots.Cells():
            _draw_cells(axes, mark)


def _draw_points(axes: Any, mark: plots.Points) -> None:
    color = _color(mark.color)
    x = _numbers(plots.centres(mark.x))
    y = _numbers(plots.centres(mark.y))
    axes.scatter(
        x,
        y,
        s=(0.55 * mark.size) ** 2,
        facecolors=COLORS[looks.PAPER] if mark.hollow else color,
        edgecolors=color,
        marker=MARKERS[mark.symbol],
        linewidths=0.9 if mark.hollow else 0,
        zorder=3,
    )
    bars = {"xerr": plots.error_bars(mark.x), "yerr": plots.error_bars(mark.y)}
    axes.errorbar(x, y, fmt="none", ecolor=color, elinewidth=0.8, **bars)


def _draw_cells(axes: "Axes", mark: plots.Cells) -> None:
    values = [_numbers(row) for row in mark.values]
    scale = _scale(looks.SIGNED_SCALE if mark.signed else looks.SHARE_SCALE)
    low = -mark.full_value if mark.signed else 0
    axes.imshow(values, cmap=scale, vmin=low, vmax=mark.full_value, aspect="equal")
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 5}
    for row, texts in enumerate(mark.texts):
        for column, text in enumerate(texts):
            color = "white" if values[row][column] > 0.6 else "black"
            axes.text(column, row, _literal(text), color=color, **style)


def _scale(colors: Sequence[str]) -> "LinearSegmentedColormap":
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("scale", [_color(color) for color in colors])


def _draw_legend(figure: "Figure", plot: plots.Plot) -> None:
    if not plot.legend:
        return
    handles = [_legend_handle(_color(color), symbol) for color, symbol in plot.legend.values()]
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
        return Patch(color=color, alpha=2 * looks.BAND_OPACITY, linewidth=0)
    marker = MARKERS.get(symbol.removesuffix("-open"), "")
    face = COLORS[looks.PAPER] if symbol.endswith("-open") else color
    style: dict[str, Any] = {"marker": marker, "ms": 4, "ls": LINES.get(symbol, "")}
    return Line2D([], [], color=color, markerfacecolor=face, **style)


def _literal(text: str) -> str:
    """Escape dollar signs, which would start a formula."""
    return text.replace("$", r"\$")


def _color(name: str) -> str:
    return COLORS.get(name, name)


def _numbers(values: plots.Numbers) -> list[float]:
    return [math.nan if value is None else value for value in values]
