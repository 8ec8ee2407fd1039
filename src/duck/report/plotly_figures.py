"""A plot for the page: traces and layout as Plotly takes them. Colours of the page are filled in there, by report.js."""

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
    Heights,
    Line,
    Mark,
    Numbers,
    Panel,
    Picture,
    Points,
    band_edges,
    log_ticks,
)

SIGNED = [[0.0, "#2166AC"], [0.5, PAPER], [1.0, "#B2182B"]]
SHARE = [[0.0, PAPER], [1.0, BLUE]]


def figure(panel: Panel, legend: Sequence[str] = ()) -> dict[str, Any]:
    """Plain data for Plotly. What all plots have in common is added by report.js: a page has hundreds of them."""
    layout: dict[str, Any] = {
        "height": panel.height,
        "xaxis": _axis(panel.x),
        "yaxis": _axis(panel.y),
    }
    if panel.square:
        border = {"constrain": "domain", "showline": True, "mirror": True}
        layout["xaxis"] |= border
        layout["yaxis"] |= {**border, "scaleanchor": "x"}
    traces = [_trace(mark, panel.y) | _place(mark, legend) for mark in panel.layers]
    return {"data": traces, "layout": layout}


def _place(mark: Mark, legend: Sequence[str]) -> dict[str, int]:
    """Of its name in the legend, which shows and hides it."""
    if isinstance(mark, Line | Points | Band) and mark.name in legend:
        return {"meta": legend.index(mark.name)}
    return {}


def plain(text: str) -> str:
    """Plotly reads some HTML in its texts: what comes from data is to be read as it stands."""
    return html.escape(text, quote=False)


def _axis(axis: Axis) -> dict[str, Any]:
    made: dict[str, Any] = (
        {"title": {"text": plain(axis.label), "standoff": 8}} if axis.label else {}
    )
    if axis.log:
        made |= {
            "type": "log",
            "tickvals": (ticks := log_ticks(axis)),
            "ticktext": [f"{tick:g}" for tick in ticks],
        }
    if axis.low is not None and axis.high is not None:
        ends = [axis.low, axis.high]
        made["range"] = [math.log10(end) for end in ends] if axis.log else ends
    if axis.ticks:
        made |= {
            "tickvals": list(range(len(axis.ticks))),
            "ticktext": [plain(name) for name in axis.ticks],
            "showgrid": False,
        }
        made["range"] = [-0.5, len(axis.ticks) - 0.5]
    if axis.down:
        made["range"] = list(reversed(made["range"]))
    if axis.hidden:
        made |= {"showticklabels": False, "showgrid": False, "showline": False, "ticks": ""}
    if axis.whole:
        made |= {
            "tickformat": "d",
            "tick0": 0,
            "dtick": max(1, round(((axis.high or 1) - (axis.low or 0)) / 12)),
        }
    return made


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
        case Heights():
            return _heights(mark)
        case Picture():
            return {
                "type": "image",
                "z": [[list(pixel) for pixel in row] for row in mark.pixels],
                "hoverinfo": "skip",
            }


def _line(mark: Line) -> dict[str, Any]:
    style = {"color": mark.color, "width": 2, "dash": "dot" if mark.dashed else "solid"}
    trace = _scatter(mark, "lines+markers" if mark.marked else "lines") | {
        "line": style,
        "marker": {"color": mark.color, "size": 7},
    }
    return trace | (
        {"hovertemplate": f"{_literal(mark.name)}: %{{y:.4~g}}<extra></extra>"}
        if mark.name
        else {"hoverinfo": "skip"}
    )


def _scatter(mark: Line | Points, mode: str) -> dict[str, Any]:
    return {"mode": mode, "x": _finite(mark.x), "y": _finite(mark.y)}


def _points(mark: Points) -> dict[str, Any]:
    # An edge keeps points apart that lie over each other; small ones would be all edge.
    fill, edge = (PAPER, mark.color) if mark.hollow else (mark.color, PAPER)
    style: dict[str, Any] = {"color": fill, "symbol": mark.symbol, "size": mark.size}
    if mark.size > 5 or mark.hollow:
        style["line"] = {"color": edge, "width": 1.6 if mark.hollow else 1}
    trace = _scatter(mark, "markers") | {"marker": style}
    for name, interval, values in (
        ("error_x", mark.x_interval, mark.x),
        ("error_y", mark.y_interval, mark.y),
    ):
        if interval is not None:
            low, high = interval
            trace[name] = {
                "type": "data", "symmetric": False, "thickness": 1.5, "width": 3, "color": mark.color,
                "array": _distances(values, high), "arrayminus": _distances(low, values),
            }  # fmt: skip
    if mark.texts:
        texts = [plain(text) for text in mark.texts]
        return trace | {"hovertext": texts[0] if len(texts) == 1 else texts, "hoverinfo": "text"}
    return trace | {"hoverinfo": "skip"}


def _band(mark: Band, y: Axis) -> dict[str, Any]:
    """A closed outline: there along the lower curve, back along the upper one."""
    low, high = band_edges(mark, y)
    return {
        "mode": "lines", "x": _finite([*mark.x, *reversed(mark.x)]),
        "y": _finite([*low, *reversed(high)]), "fill": "toself",
        "fillcolor": mark.color, "opacity": BAND_OPACITY, "line": {"width": 0}, "hoverinfo": "skip",
    }  # fmt: skip


def _cells(mark: Cells) -> dict[str, Any]:
    values = [_finite(row) for row in mark.values]
    trace = {
        "type": "heatmap", "z": values, "showscale": False, "xgap": 0 if mark.signed else 1, "ygap": 0 if mark.signed else 1,
        "colorscale": SIGNED if mark.signed else SHARE, "zmin": -mark.most if mark.signed else 0, "zmax": mark.most,
    }  # fmt: skip
    if not mark.texts:
        return trace | {"hovertemplate": f"%{{z:.3g}} {_literal(mark.unit)}<extra></extra>"}
    texts = [[plain(text) for text in row] for row in mark.texts]
    return trace | {
        "text": texts,
        "texttemplate": "%{text}",
        "hovertemplate": f"%{{text}} {_literal(mark.unit)}<extra></extra>",
    }


def _heights(mark: Heights) -> dict[str, Any]:
    return {
        "type": "contour", "x": list(mark.x), "y": list(mark.y), "showscale": False,
        "z": [_finite(row) for row in mark.z],
        "contours": {"size": mark.step, "coloring": "lines", "showlabels": True, "labelfont": {"color": MUTED, "size": 11}},
        "autocontour": False, "line": {"width": 1.2}, "colorscale": [[0.0, VERMILION], [0.5, "#999999"], [1.0, BLUE]],
        "hovertemplate": f"{_literal(mark.unit)} %{{z:.3f}}<extra></extra>",
    }  # fmt: skip


def _literal(text: str) -> str:
    """Inside a template, where %{...} would be filled in."""
    return plain(text).replace("%{", "%\u200b{")


def _finite(values: Numbers) -> list[float | None]:
    """JSON knows no infinity; five digits are more than a screen shows."""
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
        for value in values
    ]


def _distances(low: Numbers, high: Numbers) -> list[float | None]:
    pairs = zip(low, high, strict=True)
    return [
        None if below is None or above is None else float(f"{max(0.0, above - below):.5g}")
        for below, above in pairs
    ]
