"""Plots for the page, as traces and layout of Plotly. report.js fills in the page's colours."""

import html
import math
from collections.abc import Sequence
from typing import Any

from duck.report.plots import (
    BAND_OPACITY,
    BLUE,
    MUTED,
    PAPER,
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
    Points,
    band_edges,
    log_ticks,
)

SIGNED_SCALE = [[0.0, "#2166AC"], [0.5, PAPER], [1.0, "#B2182B"]]
SHARE_SCALE = [[0.0, PAPER], [1.0, BLUE]]


def to_plotly(panel: Panel, legend: Sequence[str] = ()) -> dict[str, Any]:
    """Return a panel as plain data for Plotly.

    A page has hundreds of plots: report.js adds what they have in common.
    """
    layout: dict[str, Any] = {
        "height": panel.height,
        "xaxis": _axis(panel.x),
        "yaxis": _axis(panel.y),
    }
    if panel.square:
        border = {"constrain": "domain", "showline": True, "mirror": True}
        layout["xaxis"] |= border
        layout["yaxis"] |= {**border, "scaleanchor": "x"}
    traces = [_trace(mark, panel.y) | _legend_index(mark, legend) for mark in panel.layers]
    return {"data": traces, "layout": layout}


def _legend_index(mark: Mark, legend: Sequence[str]) -> dict[str, int]:
    """Return the place of a mark's name in the legend, which shows and hides the mark."""
    if isinstance(mark, Line | Points | Band) and mark.name in legend:
        return {"meta": legend.index(mark.name)}
    return {}


def escape_html(text: str) -> str:
    """Escape a text from data, because Plotly interprets some HTML."""
    return html.escape(text, quote=False)


def _axis(axis: Axis) -> dict[str, Any]:
    layout: dict[str, Any] = {}
    if axis.label:
        layout["title"] = {"text": escape_html(axis.label), "standoff": 8}
    if axis.log:
        ticks = log_ticks(axis)
        layout |= {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    if axis.low is not None and axis.high is not None:
        ends = [axis.low, axis.high]
        layout["range"] = [math.log10(end) for end in ends] if axis.log else ends
    if axis.ticks:
        layout |= _named_ticks(axis.ticks)
    if axis.is_reversed:
        layout["range"] = list(reversed(layout["range"]))
    if axis.hidden:
        layout |= {"showticklabels": False, "showgrid": False, "showline": False, "ticks": ""}
    if axis.integers_only:
        step = max(1, round(((axis.high or 1) - (axis.low or 0)) / 12))
        layout |= {"tickformat": "d", "tick0": 0, "dtick": step}
    return layout


def _named_ticks(names: Sequence[str]) -> dict[str, Any]:
    return {
        "tickvals": list(range(len(names))),
        "ticktext": [escape_html(name) for name in names],
        "showgrid": False,
        "range": [-0.5, len(names) - 0.5],
    }


def _trace(mark: Mark, y: Axis) -> dict[str, Any]:
    match mark:
        case Line():
            return _line(mark)
        case Points():
            return _points(mark)
        case Band():
            return _band(mark, y)
        case Cells():
            return _cells(mark)
        case Contours():
            return _contours(mark)
        case Picture():
            pixels = [[list(pixel) for pixel in row] for row in mark.pixels]
            return {"type": "image", "z": pixels, "hoverinfo": "skip"}


def _line(mark: Line) -> dict[str, Any]:
    trace = _scatter(mark, "lines+markers" if mark.show_points else "lines")
    style = {"color": mark.color, "width": 2, "dash": "dot" if mark.dashed else "solid"}
    trace |= {"line": style, "marker": {"color": mark.color, "size": 7}}
    if not mark.name:
        return trace | {"hoverinfo": "skip"}
    return trace | {"hovertemplate": f"{_escape_template(mark.name)}: %{{y:.4~g}}<extra></extra>"}


def _scatter(mark: Line | Points, mode: str) -> dict[str, Any]:
    return {"mode": mode, "x": _finite(mark.x), "y": _finite(mark.y)}


def _points(mark: Points) -> dict[str, Any]:
    trace = _scatter(mark, "markers") | {"marker": _point_style(mark)}
    if mark.x_interval is not None:
        trace["error_x"] = _error_bars(mark.x, *mark.x_interval, mark.color)
    if mark.y_interval is not None:
        trace["error_y"] = _error_bars(mark.y, *mark.y_interval, mark.color)
    if not mark.texts:
        return trace | {"hoverinfo": "skip"}
    texts = [escape_html(text) for text in mark.texts]
    return trace | {"hovertext": texts[0] if len(texts) == 1 else texts, "hoverinfo": "text"}


def _point_style(mark: Points) -> dict[str, Any]:
    fill, edge = (PAPER, mark.color) if mark.hollow else (mark.color, PAPER)
    style: dict[str, Any] = {"color": fill, "symbol": mark.symbol, "size": mark.size}
    # An edge separates points that overlap. Small points would be all edge.
    if mark.size > 5 or mark.hollow:
        style["line"] = {"color": edge, "width": 1.6 if mark.hollow else 1}
    return style


def _error_bars(values: Numbers, low: Numbers, high: Numbers, color: str) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "thickness": 1.5,
        "width": 3,
        "color": color,
        "array": _distances(values, high),
        "arrayminus": _distances(low, values),
    }


def _band(mark: Band, y: Axis) -> dict[str, Any]:
    """Return a closed outline: forward along the lower curve, back along the upper one."""
    low, high = band_edges(mark, y)
    return {
        "mode": "lines",
        "x": _finite([*mark.x, *reversed(mark.x)]),
        "y": _finite([*low, *reversed(high)]),
        "fill": "toself",
        "fillcolor": mark.color,
        "opacity": BAND_OPACITY,
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def _cells(mark: Cells) -> dict[str, Any]:
    gap = 0 if mark.signed else 1
    trace = {
        "type": "heatmap",
        "z": [_finite(row) for row in mark.values],
        "showscale": False,
        "xgap": gap,
        "ygap": gap,
        "colorscale": SIGNED_SCALE if mark.signed else SHARE_SCALE,
        "zmin": -mark.full_value if mark.signed else 0,
        "zmax": mark.full_value,
    }
    unit = _escape_template(mark.unit)
    if not mark.texts:
        return trace | {"hovertemplate": f"%{{z:.3g}} {unit}<extra></extra>"}
    return trace | {
        "text": [[escape_html(text) for text in row] for row in mark.texts],
        "texttemplate": "%{text}",
        "hovertemplate": f"%{{text}} {unit}<extra></extra>",
    }


def _contours(mark: Contours) -> dict[str, Any]:
    labels = {"color": MUTED, "size": 11}
    return {
        "type": "contour",
        "x": list(mark.x),
        "y": list(mark.y),
        "showscale": False,
        "z": [_finite(row) for row in mark.z],
        "contours": {
            "size": mark.step,
            "coloring": "lines",
            "showlabels": True,
            "labelfont": labels,
        },
        "autocontour": False,
        "line": {"width": 1.2},
        "colorscale": [[0.0, VERMILION], [0.5, "#999999"], [1.0, BLUE]],
        "hovertemplate": f"{_escape_template(mark.unit)} %{{z:.3f}}<extra></extra>",
    }


def _escape_template(text: str) -> str:
    """Escape a text inside a template, where Plotly would replace %{...}."""
    return escape_html(text).replace("%{", "%\u200b{")


def _finite(values: Numbers) -> list[float | None]:
    """Round to five digits, and replace infinity and NaN, which JSON does not have, by None."""
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
        for value in values
    ]


def _distances(low: Numbers, high: Numbers) -> list[float | None]:
    return [
        None if below is None or above is None else float(f"{max(0.0, above - below):.5g}")
        for below, above in zip(low, high, strict=True)
    ]
