"""The plot of AUS: what is still remembered against the accuracy that was lost."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from duck.metrics import aus
from duck.report.bench_records import current_results
from duck.report.formats import format_number
from duck.report.looks import GREEN, INK, VERMILION, Look
from duck.report.plots import Axis, Band, Contours, Line, Mark, Panel, Plot, Points
from duck.report.results import Result
from duck.report.series import Series, make_series, preset_legend, preset_notes, scenarios_of

GRID_STEPS = 24
"""Steps of the plane on which AUS is computed."""
NEAR_IDEAL = 0.1
"""Good methods lose less accuracy than this and have a smaller Δ."""
CAPTION = (
    "Lines of equal AUS. The ideal, AUS 1, is at the lower left. Δ is the accuracy on unseen "
    "samples of the forgotten classes. If samples are forgotten, Δ is the difference between "
    "the accuracy on them and on unseen samples. On the dotted line no accuracy is lost: "
    "the original lies there, whatever it remembers."
)


def plot_contour(results: Sequence[Result], looks: Mapping[str, Look] | None = None) -> Plot | None:
    """Plot the results over lines of equal AUS."""
    current = current_results(results)
    placed = [result for result in current if None not in (result.delta, result.drop, result.aus)]
    if not placed:
        return None
    series = make_series(placed, looks)
    scenarios = scenarios_of(placed)
    panels: list[Panel] = []
    for scenario in scenarios:
        title = scenario.capitalize() if len(scenarios) > 1 else ""
        same_scenario = [one.within(scenario) for one in series]
        panels += _scenario_panels(title, [one for one in same_scenario if one.results])
    panels[0] = replace(panels[0], marks=[*panels[0].marks, *preset_legend(series)])
    best = max(placed, key=lambda result: result.scores.get("aus") or 0)
    alt = (
        f"{len(placed)} runs over lines of equal AUS. {best.label} on {best.request_label} has "
        f"the highest AUS, {format_number(best.aus)}."
    )
    caption = CAPTION + preset_notes(results, current, series)
    title = "AUS: what is still remembered against what was lost"
    columns = 2 if len(panels) > len(scenarios) else 0
    return Plot("aus-contour", title, caption, alt, panels, columns)


def _scenario_panels(title: str, series: Sequence[Series]) -> list[Panel]:
    """Return a panel of all results and, if many are near the ideal, a second one of these."""
    places: list[tuple[float, float]] = []
    for one in series:
        places += [(result.delta or 0.0, result.drop or 0.0) for result in one.results]
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


def _contour_panel(
    title: str, series: Sequence[Series], right: float, bottom: float, top: float
) -> Panel:
    marks: list[Mark] = [
        _contours(right, bottom, top),
        *_shaded_regions(right, bottom, top),
        Line("accuracy of the original", [0, 100 * right], [0, 0], INK, dashed=True),
        *(_result_points(one) for one in series),
    ]
    x = Axis("Δ: still remembered (points)", -2 * right, 102 * right)
    y = Axis("accuracy lost (points)", 100 * bottom, 100 * top)
    return Panel(title, marks, x, y, 400)


def _contours(right: float, bottom: float, top: float) -> Contours:
    x = np.linspace(0, right, GRID_STEPS + 1).tolist()
    y = np.linspace(bottom, top, GRID_STEPS + 1).tolist()
    # Only the difference of the first two accuracies matters.
    plane = [[aus("class", max(0.0, drop), max(0.0, -drop), delta) for delta in x] for drop in y]
    interval = 0.1 if right >= 0.5 else 0.05 if right > NEAR_IDEAL else 0.02
    return Contours(_percents(x), _percents(y), plane, interval, "AUS")


def _result_points(series: Series) -> Points:
    texts = [
        f"{one.name}: {one.label_with_preset}, {one.request_label}, AUS {format_number(one.aus)}"
        for one in series.results
    ]
    deltas = [result.delta or 0.0 for result in series.results]
    drops = [result.drop or 0.0 for result in series.results]
    style = series.style | {"size": 7, "texts": texts}
    return Points(series.label, _percents(deltas), _percents(drops), **style)


def _shaded_regions(right: float, bottom: float, top: float) -> list[Band]:
    """Return the regions with AUS below 0.5 and above 1, as far as the axes reach.

    AUS = (1 - drop) / (1 + delta) is constant on the line drop = 1 - AUS * (1 + delta).
    """
    regions = []
    for name, level, color in (("AUS below 0.5", 0.5, VERMILION), ("AUS above 1", 1.0, GREEN)):
        # The line is cut where it leaves the axes.
        crossings = [(1 - edge) / level - 1 for edge in (bottom, top)]
        x = sorted({0.0, right, *(crossing for crossing in crossings if 0 < crossing < right)})
        border = [min(top, max(bottom, 1 - level * (1 + delta))) for delta in x]
        low, high = (border, [top] * len(x)) if level < 1 else ([bottom] * len(x), border)
        if low != high:
            regions.append(Band(name, _percents(x), _percents(low), _percents(high), color))
    return regions


def _percents(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]


def _with_margin(value: float, least: float) -> float:
    """Return a limit a little beyond the value, so that no point lies on the edge."""
    return max(least, 1.15 * value)
