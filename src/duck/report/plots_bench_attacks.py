"""The plot of the attacks of a bench: mean ROC curves of each method and preset."""

from collections.abc import Mapping, Sequence

import numpy as np

from duck.report.bench_records import current_results
from duck.report.looks import choose_looks
from duck.report.plots import Band, Line, Mark, Panel, Plot
from duck.report.results import Result
from duck.report.roc import CHANCE, LOW_RATES, LOWEST_RATE

ROC_POINTS = 31
"""Points of a ROC curve; there is one curve for each run."""


def plot_bench_attacks(results: Sequence[Result]) -> Plot | None:
    """Plot the mean ROC curve of each method and preset, a panel for each attack and request."""
    attacked = current_results([result for result in results if result.roc], _panel_title)
    if not attacked:
        return None
    presets: dict[str, set[str]] = {}
    for result in attacked:
        presets.setdefault(result.label, set()).add(result.preset)
    panels = []
    repeats: dict[str, set[int]] = {}
    for title in dict.fromkeys(map(_panel_title, attacked)):
        marks: list[Mark] = [CHANCE]
        in_panel = [result for result in attacked if _panel_title(result) == title]
        for method, (color, _) in choose_looks(result.label for result in in_panel).items():
            *others, last = sorted(presets[method])
            for preset in (*others, last):
                same = [one for one in in_panel if (one.label, one.preset) == (method, preset)]
                if same:
                    name = f"{method} ({preset})" if others else method
                    # The last preset of a method has the solid line.
                    marks += _mean_curve(name, same, color, dashed=preset != last)
                if len(same) > 1:
                    repeats.setdefault(same[0].attack, set()).add(len(same))
        panels.append(Panel(title, marks, *LOW_RATES))
    caption = (
        "Mean over classes or seeds, of forgotten against unseen samples. On the dotted line the "
        "attack only guesses. A line starts at the lowest rate that the number of unseen samples "
        "can show." + _describe_bands(repeats)
    )
    titles = ", ".join(panel.title for panel in panels)
    alt = f"Mean ROC curves of {len(attacked)} attacked models: {titles}."
    return Plot("bench-attacks", "Attacks on the models of a bench", caption, alt, panels)


def _panel_title(result: Result) -> str:
    """Return the attack, the data and the kind of request."""
    request = "samples"
    if result.kind == "class":
        count = result.class_count or 1
        request = "a class" if count == 1 else f"{count} classes"
    return f"{result.attack}: {result.experiment.training.data}, {request}"


def _mean_curve(name: str, results: Sequence[Result], color: str, dashed: bool) -> list[Mark]:
    """Return the mean curve and, of several, a band of one standard deviation to each side."""
    curves = [result.roc for result in results if result.roc]
    # Fewer non-members cannot show a lower false-positive rate.
    lowest = max(1 / curve.others if curve.others else 0 for curve in curves)
    grid = np.logspace(np.log10(max(lowest, LOWEST_RATE)), 0, ROC_POINTS)
    rates = np.array([np.interp(grid, curve.fpr, curve.tpr) for curve in curves])
    mean = rates.mean(0)
    line = Line(name, grid.tolist(), mean.tolist(), color, dashed=dashed)
    if len(curves) < 2:
        return [line]
    spread = rates.std(0, ddof=1)
    # A log axis has no 0.
    low, high = np.clip([mean - spread, mean + spread], LOWEST_RATE, 1).tolist()
    return [Band(name, grid.tolist(), low, high, color), line]


def _describe_bands(repeats: Mapping[str, set[int]]) -> str:
    """Describe the bands, with the number of curves behind them for each attack."""
    if not repeats:
        return ""
    numbers = {
        attack: " to ".join(map(str, sorted({min(counts), max(counts)})))
        for attack, counts in repeats.items()
    }
    n = next(iter(numbers.values()))
    if len(set(numbers.values())) > 1:
        n = ", ".join(f"{number} for {attack}" for attack, number in numbers.items())
    return f" Bands: one standard deviation to each side, over classes or seeds (n = {n})."
