"""Plots for the page, as traces and layout of Plotly. report.js fills in the page's colours."""

import html
import math
from collections.abc import Callable, Sequence
from typing import Any

from duck.report import plots, styles

Json = dict[str, Any]


def to_plotly(panel: plots.Panel, legend: Sequence[str] = ()) -> Json:
    """Return a panel as plain data for Plotly.

    A page has hundreds of plots: report.js adds what they have in common.
    """
    layout: Json = {"height": panel.height, "xaxis": _axis(panel.x), "yaxis": _axis(panel.y)}
    if panel.is_image:
        border = {"constrain": "domain", "showline": True, "mirror": True}
        layout["xaxis"] |= border
        layout["yaxis"] |= {**border, "scaleanchor": "x"}
    traces = []
    # Bands would hide other marks.
    for mark in sorted(panel.marks, key=lambda mark: not isinstance(mark, plots.Band)):
        traces.append(TRACES[type(mark)](mark))
        if isinstance(mark, plots.NamedMark) and mark.name in legend:
            # The name in the legend shows and hides the mark.
            traces[-1]["meta"] = legend.index(mark.name)
    return {"data": traces, "layout": layout}


def escape_html(text: str) -> str:
    """Escape a text from data, because Plotly interprets some HTML."""
    return html.escape(text, quote=False)


def _axis(axis: plots.Axis) -> Json:
    layout: Json = {}
    if axis.label:
        layout["title"] = {"text": escape_html(axis.label), "standoff": 8}
    if axis.ends:
        layout["range"] = [math.log10(end) if axis.log else end for end in axis.ends]
    if axis.log:
        names = [f"{tick:g}" for tick in axis.log_ticks]
        layout |= {"type": "log", "tickvals": axis.log_ticks, "ticktext": names}
    if axis.ticks:
        names = [escape_html(name) for name in axis.ticks]
        layout |= {"tickvals": list(range(len(names))), "ticktext": names, "showgrid": False}
    if axis.hidden:
        layout |= {"showticklabels": False, "showgrid": False, "showline": False, "ticks": ""}
    if axis.integers_only:
        step = max(1, round(((axis.high or 1) - (axis.low or 0)) / 12))
        layout |= {"tickformat": "d", "tick0": 0, "dtick": step}
    return layout


def _line(mark: plots.Line) -> Json:
    trace: Json = {
        "mode": "lines+markers" if mark.show_points else "lines",
        "x": _finite(mark.x),
        "y": _finite(mark.y),
        "line": {"color": mark.color, "width": 2, "dash": "dot" if mark.dashed else "solid"},
        "marker": {"color": mark.color, "size": 7},
    }
    if mark.label:
        texts = ["", escape_html(mark.label), ""]
        style = {"color": mark.color, "width": 0.8}
        font = {"color": mark.color, "size": 11}
        trace |= {"mode": "lines+text", "line": style, "text": texts, "textfont": font}
        trace["textposition"] = "top right"
    if not mark.name:
        return trace | {"hoverinfo": "skip"}
    return trace | {"name": escape_html(mark.name), "hovertemplate": "%{y:.4~g}"}


def _points(mark: plots.Points) -> Json:
    fill, edge = (styles.PAPER, mark.color) if mark.hollow else (mark.color, styles.PAPER)
    style: Json = {"color": fill, "symbol": mark.symbol, "size": mark.size}
    # An edge separates points that overlap. Small points would be all edge.
    if mark.size > 5 or mark.hollow:
        style["line"] = {"color": edge, "width": 1.6 if mark.hollow else 1}
    trace: Json = {"mode": "markers", "marker": style}
    for axis, values in (("x", mark.x), ("y", mark.y)):
        trace[axis] = _finite(plots.centres(values))
        bars = plots.error_bars(values)
        if bars:
            below, above = map(_finite, bars)
            lengths = {"array": above, "arrayminus": below, "symmetric": False}
            bar = {"color": mark.color, "thickness": 1.5, "width": 3}
            trace[f"error_{axis}"] = {"type": "data", **lengths, **bar}
    if not mark.texts:
        return trace | {"hoverinfo": "skip"}
    texts = [escape_html(text) for text in mark.texts]
    return trace | {"hovertext": texts[0] if len(texts) == 1 else texts, "hoverinfo": "text"}


def _band(mark: plots.Band) -> Json:
    """Return a closed outline: forward along the lower curve, back along the upper one."""
    return {
        "mode": "lines",
        "x": _finite([*mark.x, *reversed(mark.x)]),
        "y": _finite([*mark.low, *reversed(mark.high)]),
        "fill": "toself",
        "fillcolor": mark.color,
        "opacity": styles.BAND_OPACITY,
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def _cells(mark: plots.Cells) -> Json:
    gap = 0 if mark.signed else 1
    trace = {
        "type": "heatmap",
        "z": [_finite(row) for row in mark.values],
        "showscale": False,
        "xgap": gap,
        "ygap": gap,
        "colorscale": _scale(styles.SIGNED_SCALE if mark.signed else styles.SHARE_SCALE),
        "zmin": -mark.full_value if mark.signed else 0,
        "zmax": mark.full_value,
    }
    if not mark.texts:
        return trace | {"hovertemplate": f"%{{z:.3g}} {mark.unit}<extra></extra>"}
    return trace | {
        "text": [[escape_html(text) for text in row] for row in mark.texts],
        "texttemplate": "%{text}",
        "hovertemplate": f"%{{text}} {mark.unit}<extra></extra>",
    }


def _scale(colors: Sequence[str]) -> list[tuple[float, str]]:
    return [(place / (len(colors) - 1), color) for place, color in enumerate(colors)]


def _finite(values: plots.Numbers) -> list[float | None]:
    """Round to five digits, and replace infinity and NaN, which JSON does not have, by None."""
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
        for value in values
    ]


TRACES: dict[type[plots.Mark], Callable[[Any], Json]] = {
    plots.Line: _line,
    plots.Points: _points,
    plots.Band: _band,
    plots.Cells: _cells,
}
