"""The plot of the attacks of a bench: mean ROC curves of each method and preset."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from duck.report.bench_records import AttackCurve, drop_past_settings
from duck.report.plots import Axis, Band, Line, Mark, Panel, Plot
from duck.report.plots_run import CHANCE
from duck.report.series import choose_looks

ROC_POINTS = 31
"""Points of a ROC curve; there is one curve for each run."""
LOG_RATES = (
    Axis("false-positive rate", 1e-3, 1, log=True),
    Axis("true-positive rate", 1e-3, 1, log=True),
)


class CurveGroup(NamedTuple):
    """The curves of one method and preset in one panel."""

    name: str
    color: str
    dashed: bool
    curves: list[AttackCurve]


def plot_bench_attacks(curves: Sequence[AttackCurve]) -> Plot | None:
    """Plot the mean ROC curve of each method and preset, a panel for each attack and request."""
    curves = drop_past_settings(curves, lambda curve: (_panel_key(curve), curve.method))
    if not curves:
        return None
    presets = _presets_by_method(curves)
    panels = []
    repeats: dict[str, set[int]] = {}
    for key in dict.fromkeys(map(_panel_key, curves)):
        marks: list[Mark] = [CHANCE]
        same_panel = [curve for curve in curves if _panel_key(curve) == key]
        for group in _group_curves(same_panel, presets):
            marks += _mean_curve(group)
            if len(group.curves) > 1:
                repeats.setdefault(key[0], set()).add(len(group.curves))
        panels.append(Panel("{}: {}, {}".format(*key), marks, *LOG_RATES))
    caption = (
        "Mean over classes or seeds, of forgotten against unseen samples. On the dotted line the "
        "attack only guesses. A line starts at the lowest rate that the number of unseen samples "
        "can show." + _describe_bands(repeats)
    )
    titles = ", ".join(panel.title for panel in panels)
    alt = f"Mean ROC curves of {len(curves)} attacked models: {titles}."
    return Plot("bench-attacks", "Attacks on the models of a bench", caption, alt, panels)


def _panel_key(curve: AttackCurve) -> tuple[str, str, str]:
    """Curves with the same key share a panel."""
    return curve.attack, curve.data, curve.request


def _presets_by_method(curves: Sequence[AttackCurve]) -> dict[str, list[str]]:
    presets: dict[str, set[str]] = {}
    for curve in curves:
        presets.setdefault(curve.method, set()).add(curve.preset)
    return {method: sorted(names) for method, names in presets.items()}


def _group_curves(
    curves: Sequence[AttackCurve], presets: Mapping[str, Sequence[str]]
) -> list[CurveGroup]:
    """Group curves by method and preset. The last preset of a method has the solid line."""
    groups = []
    for method, (color, _) in choose_looks([curve.method for curve in curves]).items():
        for preset in presets[method]:
            same = [curve for curve in curves if (curve.method, curve.preset) == (method, preset)]
            name = f"{method} ({preset})" if len(presets[method]) > 1 else method
            if same:
                groups.append(CurveGroup(name, color, preset != presets[method][-1], same))
    return groups


def _mean_curve(group: CurveGroup) -> list[Mark]:
    """Return the mean curve and, of several, a band of one standard deviation to each side."""
    # Fewer non-members cannot show a lower false-positive rate.
    lowest = max(1 / curve.non_members if curve.non_members else 0 for curve in group.curves)
    grid = np.logspace(np.log10(max(lowest, 1e-3)), 0, ROC_POINTS)
    rates = np.array([np.interp(grid, curve.fpr, curve.tpr) for curve in group.curves])
    mean = rates.mean(0)
    line = Line(group.name, grid.tolist(), mean.tolist(), group.color, dashed=group.dashed)
    if len(group.curves) < 2:
        return [line]
    spread = rates.std(0, ddof=1)
    low = np.maximum(mean - spread, 0)
    high = np.minimum(mean + spread, 1)
    return [Band(group.name, grid.tolist(), low.tolist(), high.tolist(), group.color), line]


def _describe_bands(repeats: Mapping[str, set[int]]) -> str:
    """Describe the bands, with the number of curves behind them for each attack."""
    if not repeats:
        return ""
    numbers = {attack: _describe_range(counts) for attack, counts in repeats.items()}
    by_attack = ", ".join(f"{number} for {attack}" for attack, number in numbers.items())
    n = by_attack if len(set(numbers.values())) > 1 else next(iter(numbers.values()))
    return f" Bands: one standard deviation to each side, over classes or seeds (n = {n})."


def _describe_range(counts: set[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"
