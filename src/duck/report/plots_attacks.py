"""The plots of attacks: ROC curves of a run, of all audited runs, and of a bench."""

from collections.abc import Sequence

import numpy as np

from duck.audits.verdict import RocCurve
from duck.report.page_budget import FULL_DETAIL_POINTS, MAX_CURVE_POINTS
from duck.report.plots import Axis, Band, Line, Mark, Panel, Plot, round_digits
from duck.report.records import StoredRun
from duck.report.results import Result
from duck.report.series import Series, results_of, split_by
from duck.report.styles import GREEN, INK, MODELS, choose_styles

LOWEST_RATE = 1e-3
ALL_RATES = Axis("false-positive rate", -0.02, 1.02), Axis("true-positive rate", -0.02, 1.02)
LOW_RATES = (
    Axis("false-positive rate", LOWEST_RATE, 1, log=True),
    Axis("true-positive rate", LOWEST_RATE, 1, log=True),
)
CHANCE = Line("chance", [1e-4, 1], [1e-4, 1], INK, dashed=True)
ROC_POINTS = 31
"""Points of a ROC curve; there is one curve for each run."""


def roc_line(name: str, curve: RocCurve, max_points: int, color: str, dashed: bool = False) -> Line:
    """Return a ROC curve with at most this many points, evenly spaced, with both ends.

    Stored curves already have more points at low rates.
    """
    last = len(curve.fpr) - 1
    rows = list(range(last + 1))
    if last >= max_points:
        rows = [round(place * last / (max_points - 1)) for place in range(max_points)]
    fpr, tpr = ([round_digits(rates[row]) for row in rows] for rates in (curve.fpr, curve.tpr))
    return Line(name, fpr, tpr, color, dashed)


def plot_run_attacks(stored: StoredRun, max_points: int = MAX_CURVE_POINTS) -> Plot | None:
    """Plot the ROC curves of the audit, on linear axes and at low false-positive rates."""
    if not stored.roc:
        return None
    panels = []
    for attack, curves in stored.roc.items():
        lines = [
            roc_line(model, curve, max_points, MODELS.get(model, (GREEN,))[0])
            for model, curve in curves.items()
        ]
        # A page of many runs has room for one panel only.
        if max_points >= FULL_DETAIL_POINTS:
            panels.append(Panel(f"{attack}: all rates", [*lines, CHANCE], *ALL_RATES))
        title = f"{attack}: low false-positive rates"
        panels.append(Panel(title, [*lines, CHANCE], *LOW_RATES))
    caption = (
        "True-positive rate: share of the forgotten samples that the attack finds. False-positive "
        "rate: share of other samples that it wrongly counts as forgotten. On the dotted line the "
        "attack only guesses."
    )
    alt = f"ROC curves of {', '.join(stored.roc)}; the numbers are in the table of attacks."
    title = "Attacks: can an attacker tell which samples were forgotten?"
    return Plot("attacks", title, caption, alt, panels)


def plot_all_attacks(runs: Sequence[StoredRun]) -> Plot | None:
    """Plot the ROC curves of all audited runs, a panel for each attack."""
    audited = sorted((run for run in runs if run.roc), key=lambda run: run.result.label)
    if len(audited) < 2:
        return None
    styles = choose_styles(run.result.label for run in audited)
    lines: dict[str, list[Mark]] = {}
    for run in audited:
        color, symbol = styles[run.result.label]
        for attack, curves in run.roc.items():
            marks = lines.setdefault(attack, [CHANCE])
            if "unlearned" in curves:
                curve = curves["unlearned"]
                is_dashed = symbol == "square"
                marks.append(roc_line(run.result.label, curve, ROC_POINTS, color, is_dashed))
    panels = [Panel(attack, marks, *LOW_RATES) for attack, marks in lines.items()]
    caption = (
        "Each line is the unlearned model of a run. On the dotted line the attack only guesses."
    )
    alt = f"ROC curves of {len(audited)} runs for {', '.join(lines)}."
    return Plot("attacks", "Attacks on all audited runs", caption, alt, panels)


def plot_bench_attacks(series: Sequence[Series]) -> Plot | None:
    """Plot the mean ROC curve of each method and preset, a panel for each attack and request."""
    if not series:
        return None
    panels = []
    counts = []
    for title, part in split_by(series, _panel_title).items():
        marks: list[Mark] = [CHANCE]
        for one in part:
            name = f"{one.label} (paper)" if one.is_paper else one.label
            counts.append(len(one.results))
            marks += _mean_curve(name, one.results, one.color, dashed=one.is_paper)
        panels.append(Panel(title, marks, *LOW_RATES))
    caption = (
        "Mean over classes or seeds, of forgotten against unseen samples. On the dotted line the "
        "attack only guesses. A line starts at the lowest rate that the number of unseen samples "
        "can show."
    )
    most = max(counts)
    if most > 1:
        caption += f" Bands: one standard deviation to each side (n up to {most})."
    titles = ", ".join(panel.title for panel in panels)
    alt = f"Mean ROC curves of {len(results_of(series))} attacked models: {titles}."
    return Plot("bench-attacks", "Attacks on the models of a bench", caption, alt, panels)


def _panel_title(result: Result) -> str:
    """Return the attack, the data and the kind of request."""
    request = "samples"
    if result.kind == "class":
        count = result.class_count or 1
        request = "1 class" if count == 1 else f"{count} classes"
    return f"{result.attack}: {result.data}, {request}"


def _mean_curve(name: str, results: Sequence[Result], color: str, dashed: bool) -> list[Mark]:
    """Return the mean curve and, of several, a band of one standard deviation to each side."""
    curves = [result.roc for result in results if result.roc]
    # Fewer non-members cannot show a lower false-positive rate.
    lowest = max(1 / curve.others for curve in curves)
    grid = np.logspace(np.log10(max(lowest, LOWEST_RATE)), 0, ROC_POINTS)
    rates = np.array([np.interp(grid, curve.fpr, curve.tpr) for curve in curves])
    mean = rates.mean(0)
    line = Line(name, grid.tolist(), mean.tolist(), color, dashed=dashed)
    if len(curves) < 2:
        return [line]
    spread = rates.std(0, ddof=1)
    # A log axis has no 0.
    low, high = np.clip([mean - spread, mean + spread], LOWEST_RATE, 1).tolist()
    return [line, Band(name, grid.tolist(), low, high, color)]
