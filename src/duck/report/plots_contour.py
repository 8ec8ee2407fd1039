"""The plot of AUS: what is still remembered against the accuracy that was lost."""

import math
from collections.abc import Sequence
from dataclasses import replace

from duck.report.formats import format_number
from duck.report.plots import Axis, Line, Mark, Panel, Plot, Points
from duck.report.series import HOLLOW_NOTE, Series, by_scenario, preset_legend, results_of, select
from duck.report.styles import INK, MUTED

NEAR_IDEAL = 0.1
"""Good methods lose less accuracy than this and have a smaller Δ."""
CAPTION = (
    "Thin lines: equal AUS. The ideal, AUS 1, is at the lower left. Δ is the accuracy on unseen "
    "samples of the forgotten classes. If samples are forgotten, Δ is the difference between "
    "the accuracy on them and on unseen samples. On the dotted line no accuracy is lost: "
    "the original lies there, whatever it remembers."
)


def plot_contour(series: Sequence[Series]) -> Plot | None:
    """Plot the results over lines of equal AUS."""
    placed = select(series, lambda one: None not in (one.delta, one.drop, one.aus))
    if not placed:
        return None
    scenarios = by_scenario(placed)
    panels: list[Panel] = []
    for title, part in scenarios.items():
        panels += _scenario_panels(title, part)
    legend = preset_legend(placed)
    panels[0] = replace(panels[0], marks=[*panels[0].marks, *legend])
    results = results_of(placed)
    best = max(results, key=lambda result: result.scores["aus"] or 0)
    alt = (
        f"{len(results)} runs over lines of equal AUS. {best.label} on {best.request_label} has "
        f"the highest AUS, {format_number(best.aus)}."
    )
    caption = CAPTION + HOLLOW_NOTE * bool(legend)
    title = "AUS: what is still remembered against what was lost"
    columns = 2 if len(panels) > len(scenarios) else 0
    return Plot("aus-contour", title, caption, alt, panels, columns)


def _scenario_panels(title: str, series: Sequence[Series]) -> list[Panel]:
    """Return a panel of all results and, if many are near the ideal, a second one of these."""
    places = [(result.delta or 0.0, result.drop or 0.0) for result in results_of(series)]
    deltas, drops = zip(*places, strict=True)
    # Accuracies are at most 1, so no more than that can be lost or gained.
    right = min(1.0, _with_margin(max(deltas), 0.2))
    bottom = -min(1.0, _with_margin(-min(drops), 0.05))
    top = min(1.0, _with_margin(max(drops), 0.1))
    panels = [_contour_panel(title, series, right, bottom, top)]
    near_count = sum(max(place) <= NEAR_IDEAL for place in places)
    if near_count > 3 and max(right, top) > 2.5 * NEAR_IDEAL:
        near_title = f"{title}, near the ideal" if title else "Near the ideal"
        near_bottom = max(bottom, -NEAR_IDEAL / 2)
        panels.append(_contour_panel(near_title, series, NEAR_IDEAL, near_bottom, NEAR_IDEAL))
    return panels


def _with_margin(value: float, least: float) -> float:
    """Return a limit a little beyond the value, so that no point lies on the edge."""
    return max(least, 1.15 * value)


def _contour_panel(
    title: str, series: Sequence[Series], right: float, bottom: float, top: float
) -> Panel:
    marks: list[Mark] = [
        *_aus_lines(right, bottom, top),
        Line("accuracy of the original", [0, 100 * right], [0, 0], INK, dashed=True),
        *(_result_points(one) for one in series),
    ]
    x = Axis("Δ: still remembered (points)", -2 * right, 102 * right)
    y = Axis("accuracy lost (points)", 100 * bottom, 100 * top)
    return Panel(title, marks, x, y, 400)


def _aus_lines(right: float, bottom: float, top: float) -> list[Line]:
    """Return the lines of equal AUS between the axes.

    AUS = (1 - drop) / (1 + delta) is constant on the straight line drop = 1 - AUS * (1 + delta).
    """
    step = 0.1 if right >= 0.5 else 0.05 if right > NEAR_IDEAL else 0.02
    lowest, highest = (1 - top) / (1 + right), 1 - bottom
    lines = []
    for number in range(max(1, math.ceil(lowest / step)), math.floor(highest / step) + 1):
        aus = number * step
        start = max(0.0, (1 - top) / aus - 1)
        end = min(right, (1 - bottom) / aus - 1)
        if end - start > 0.01 * right:  # shorter lines are not visible
            deltas = [start, (start + end) / 2, end]
            x = [100 * delta for delta in deltas]
            y = [100 * (1 - aus * (1 + delta)) for delta in deltas]
            lines.append(Line("", x, y, MUTED, label=f"{aus:.2f}"))
    return lines


def _result_points(series: Series) -> Points:
    texts = [
        f"{one.name}: {one.label_with_preset}, {one.request_label}, AUS {format_number(one.aus)}"
        for one in series.results
    ]
    deltas = [100 * (result.delta or 0.0) for result in series.results]
    drops = [100 * (result.drop or 0.0) for result in series.results]
    return series.points(deltas, drops, texts, size=7)
