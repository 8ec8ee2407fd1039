"""The plots over all runs: AUS, time, number of classes, densities and attacks."""

from collections.abc import Sequence
from dataclasses import replace

from duck.report.bench_records import AttackCurve, ClassDensities
from duck.report.class_densities import plot_densities
from duck.report.formats import format_interval, format_number
from duck.report.groups import group_labels
from duck.report.numbers import interval_ends
from duck.report.plots import Axis, Line, Mark, Panel, Plot, Points
from duck.report.plots_bench_attacks import LOG_RATES, ROC_POINTS, plot_bench_attacks
from duck.report.plots_contour import plot_contour
from duck.report.plots_run import CHANCE, thin
from duck.report.records import StoredRun, make_anchor
from duck.report.results import Result
from duck.report.series import (
    Looks,
    Series,
    choose_looks,
    current_results,
    group_repeats,
    labels_of,
    make_series,
    preset_legend,
    preset_notes,
    scenarios_of,
    summarize,
)
from duck.scenarios import ForgetRandomClasses
from duck.types import Estimate

SCORES = {
    "AUS": "AUS",
    "Retained accuracy": "retained accuracy (%)",
    "Accuracy on forgotten classes": "accuracy (%)",
}
"""Titles of panels, and the labels of their axes."""


def make_plots(
    results: Sequence[Result],
    runs: Sequence[StoredRun],
    curves: Sequence[AttackCurve] = (),
    densities: Sequence[ClassDensities] = (),
) -> list[Plot]:
    """Return the plots over all runs, separately for each group of comparable results."""
    looks = choose_looks(labels_of(results))
    groups = [result.group for result in results] + [curve.group for curve in curves]
    labels = group_labels(groups)
    plots: list[Plot] = []
    for number, (group, label) in enumerate(labels.items(), 1):
        group_results = [result for result in results if result.group == group]
        group_curves = [curve for curve in curves if curve.group == group]
        group_plots = _plot_group(group_results, group_curves, looks)
        if len(labels) > 1:
            group_plots = [_name_group(plot, number, label) for plot in group_plots]
        plots += group_plots
    over_all = [plot_densities(runs, densities), plot_attacks(runs)]
    return [*plots, *(plot for plot in over_all if plot is not None)]


def _plot_group(
    results: Sequence[Result], curves: Sequence[AttackCurve], looks: Looks
) -> list[Plot]:
    plots = [
        plot_contour(results, looks),
        plot_time(results, looks),
        plot_class_counts(results, looks),
        plot_bench_attacks(curves),
    ]
    return [plot for plot in plots if plot is not None]


def _name_group(plot: Plot, number: int, label: str) -> Plot:
    name = make_anchor(plot.name, number, label)
    return replace(plot, name=name, title=f"{plot.title} ({label})")


def plot_time(results: Sequence[Result], looks: Looks | None = None) -> Plot | None:
    """Plot AUS and retained accuracy over the seconds of the method.

    Results of a bench with the same method, preset and size of request are one point, their mean.
    """
    current = current_results(results)
    timed = [result for result in current if _has_time(result)]
    if len(timed) < 2:
        return None
    series = make_series(timed, looks)
    repeats: list[tuple[Series, list[Result]]] = []
    for one in series:
        repeats += [(one, group) for group in group_repeats(one.results)]
    caption = (
        "Seconds of the method alone. Retained accuracy is measured on unseen samples of what was "
        "not to be forgotten. Better results are further up and to the left."
    )
    most = max(len(group) for _, group in repeats)
    if most > 1:
        caption += (
            " Runs of a bench with the same method, preset and number of classes are one point: "
            "the mean, with one standard deviation in both directions "
            f"(n up to {most})."
        )
    caption += preset_notes(results, current, series)
    repeats.sort(key=lambda repeat: summarize(repeat[1], "seconds").value)
    alt = f"From {_describe_repeats(*repeats[0])}, to {_describe_repeats(*repeats[-1])}."
    title = "AUS and accuracy against unlearning time"
    return Plot("aus-time", title, caption, alt, _time_panels(timed, series), columns=2)


def _has_time(result: Result) -> bool:
    is_scored = result.aus is not None and result.retain_accuracy is not None
    return is_scored and result.method != "original" and result.is_timed and result.seconds > 0


def _time_panels(timed: Sequence[Result], series: Sequence[Series]) -> list[Panel]:
    times = [result.seconds for result in timed]
    axis = Axis("unlearning time (s)", min(times) / 1.6, max(times) * 1.6, log=True)
    scenarios = scenarios_of(timed)
    panels: list[Panel] = []
    for scenario in scenarios:
        for score in ("AUS", "Retained accuracy"):
            points = [_time_points(one, scenario, score, axis) for one in series]
            marks: list[Mark] = [mark for mark in points if mark is not None]
            if not panels:
                marks += preset_legend(series)
            title = score
            if len(scenarios) > 1:
                title = f"{scenario.capitalize()}, {score if score == 'AUS' else score.lower()}"
            panels.append(Panel(title, marks, axis, Axis(SCORES[score])))
    return panels


def _time_points(series: Series, scenario: str, score: str, axis: Axis) -> Points | None:
    groups = group_repeats(series.within(scenario).results)
    if not groups:
        return None
    times = [summarize(group, "seconds") for group in groups]
    values = [summarize(group, score) for group in groups]
    rows = zip(groups, times, values, strict=True)
    points = Points(
        series.label,
        [time.value for time in times],
        [value.value for value in values],
        series.color,
        series.symbol,
        texts=[_point_text(series, group, score, time, value) for group, time, value in rows],
        hollow=series.is_paper,
    )
    if all(len(group) == 1 for group in groups):
        return points
    low, high = interval_ends(times)
    # A log axis has no 0.
    low = [max(end, axis.low or 0.0) for end in low]
    return replace(points, x_interval=(low, high), y_interval=interval_ends(values))


def _describe_repeats(series: Series, group: Sequence[Result]) -> str:
    seconds = summarize(group, "seconds").value
    return f"{series.label}, {seconds:.2f} s, AUS {summarize(group, 'AUS').value:.3f}"


def _point_text(
    series: Series,
    group: Sequence[Result],
    score: str,
    time: Estimate,
    value: Estimate,
) -> str:
    result = group[0]
    if len(group) == 1:
        accuracy = format_interval(result.retain_accuracy)
        shown = f"AUS {format_number(result.aus)}" if score == "AUS" else accuracy
        request = result.request_label
        return f"{result.name}: {series.name}, {request}, {result.seconds:.2f} s, {shown}"
    spread = (value.high or value.value) - value.value
    shown = f"{value.value:.1f} ± {spread:.1f} %"
    if score == "AUS":
        shown = f"AUS {value.value:.3f} ± {spread:.3f}"
    count = f"{result.class_count} classes each, " if (result.class_count or 1) > 1 else ""
    seconds = f"{time.value:.2f} ± {(time.high or time.value) - time.value:.2f} s"
    return f"{series.name}, {count}mean of {len(group)} runs: {seconds}, {shown}"


def plot_class_counts(results: Sequence[Result], looks: Looks | None = None) -> Plot | None:
    """Plot AUS and accuracies over the number of forgotten classes, mean and spread over runs."""
    current = current_results(results)
    counted = _results_with_class_count(current)
    if len({result.class_count for result in counted}) < 2:
        return None
    series = make_series(counted, looks)
    # A bench can have many methods that remove one class, and few that remove several.
    series = [one for one in series if _has_several_counts(one)] or series
    shown: list[Result] = []
    for one in series:
        shown += one.results
    counts = sorted({result.class_count or 0 for result in shown})
    caption = "Mean over runs. With several runs, with one standard deviation to each side."
    caption += preset_notes(results, current, series)
    alt = f"{len(shown)} runs that remove {', '.join(map(str, counts))} classes."
    panels = _class_count_panels(series, counts[-1])
    return Plot("many-classes", "Removing many classes at once", caption, alt, panels)


def _results_with_class_count(results: Sequence[Result]) -> list[Result]:
    """Return the results that remove classes; if possible only those of random classes.

    A user's choice of classes is another case than a random one and must not share its mean.
    """
    counted = [
        result
        for result in results
        if result.aus and result.retain_accuracy and result.forget_accuracy and result.class_count
    ]
    random = [result for result in counted if isinstance(result.request, ForgetRandomClasses)]
    return random if len({result.class_count for result in random}) > 1 else counted


def _has_several_counts(series: Series) -> bool:
    return len({result.class_count for result in series.results}) > 1


def _class_count_panels(series: Sequence[Series], largest_count: int) -> list[Panel]:
    axis = Axis("classes removed", 0, 1.05 * largest_count + 0.3, integers_only=True)
    panels: list[Panel] = []
    for score, label in SCORES.items():
        marks: list[Mark] = []
        for one in series:
            marks += _class_count_marks(one, score)
        if not panels:
            marks += preset_legend(series)
        panels.append(Panel(score, marks, axis, Axis(label)))
    return panels


def _class_count_marks(series: Series, score: str) -> list[Mark]:
    """Return a line over the number of removed classes, with its points."""
    by_count: dict[int, list[Result]] = {}
    for result in sorted(series.results, key=lambda result: result.class_count or 0):
        by_count.setdefault(result.class_count or 0, []).append(result)
    means = [summarize(group, score) for group in by_count.values()]
    x = [float(count) for count in by_count]
    y = [mean.value for mean in means]
    texts = [
        f"{series.name}, {count} classes, mean of {len(group)} runs: {mean.value:.3g}"
        for (count, group), mean in zip(by_count.items(), means, strict=True)
    ]
    points = Points(
        series.label,
        x,
        y,
        series.color,
        series.symbol,
        size=7,
        texts=texts,
        y_interval=interval_ends(means),
        hollow=series.is_paper,
    )
    return [Line("", x, y, series.color, dashed=series.is_paper), points]


def plot_attacks(runs: Sequence[StoredRun]) -> Plot | None:
    """Plot the ROC curves of all audited runs, a panel for each attack."""
    audited = [run for run in runs if run.roc]
    if len(audited) < 2:
        return None
    attacks: dict[str, None] = {}
    for run in audited:
        attacks |= dict.fromkeys(run.roc)
    panels = [Panel(attack, _audit_lines(audited, attack), *LOG_RATES) for attack in attacks]
    caption = (
        "Each line is the unlearned model of a run. On the dotted line the attack only guesses."
    )
    alt = f"ROC curves of {len(audited)} runs for {', '.join(attacks)}."
    return Plot("attacks", "Attacks on all audited runs", caption, alt, panels)


def _audit_lines(audited: Sequence[StoredRun], attack: str) -> list[Mark]:
    looks = choose_looks([run.result.label for run in audited])
    marks: list[Mark] = [CHANCE]
    for run in sorted(audited, key=lambda run: run.result.label):
        curve = run.roc.get(attack, {}).get("unlearned")
        if curve:
            color, symbol = looks[run.result.label]
            fpr, tpr = thin(curve.fpr, ROC_POINTS), thin(curve.tpr, ROC_POINTS)
            marks.append(Line(run.result.label, fpr, tpr, color, dashed=symbol == "square"))
    return marks
