"""The plots over all runs: AUS, time, number of classes, densities and attacks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from duck.report.bench_records import current_results
from duck.report.class_densities import plot_densities
from duck.report.formats import format_interval, format_number
from duck.report.groups import group_labels
from duck.report.looks import Look, choose_looks
from duck.report.plots import Axis, Line, Mark, Panel, Plot, Points, estimate_points
from duck.report.plots_attacks import plot_all_attacks, plot_bench_attacks
from duck.report.plots_contour import plot_contour
from duck.report.records import Contents, make_anchor
from duck.report.results import Result
from duck.report.series import (
    Series,
    group_repeats,
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


def make_plots(contents: Contents) -> list[Plot]:
    """Return the plots over all runs, separately for each group of comparable results."""
    unlearnings = [result for result in contents.results if result.is_unlearning]
    attacked = [result for result in contents.results if result.roc]
    looks = choose_looks(result.label for result in unlearnings)
    labels = group_labels(result.group for result in (*unlearnings, *attacked))
    plots: list[Plot] = []
    for number, (group, label) in enumerate(labels.items(), 1):
        same_group = [result for result in unlearnings if result.group == group]
        group_plots = (
            plot_contour(same_group, looks),
            plot_time(same_group, looks),
            plot_class_counts(same_group, looks),
            plot_bench_attacks([result for result in attacked if result.group == group]),
        )
        for plot in filter(None, group_plots):
            if len(labels) > 1:
                name = make_anchor(plot.name, number, label)
                plot = replace(plot, name=name, title=f"{plot.title} ({label})")
            plots.append(plot)
    over_all = plot_densities(contents.runs, contents.bench), plot_all_attacks(contents.runs)
    return [*plots, *filter(None, over_all)]


def plot_time(results: Sequence[Result], looks: Mapping[str, Look] | None = None) -> Plot | None:
    """Plot AUS and retained accuracy over the seconds of the method.

    Results of a bench with the same method, preset and size of request are one point, their mean.
    """
    current = current_results(results)
    timed = [result for result in current if _has_time(result)]
    if len(timed) < 2:
        return None
    series = make_series(timed, looks)
    repeats: list[list[Result]] = []
    for one in series:
        repeats += group_repeats(one.results)
    caption = (
        "Seconds of the method alone. Retained accuracy is measured on unseen samples of what was "
        "not to be forgotten. Better results are further up and to the left."
    )
    most = max(map(len, repeats))
    if most > 1:
        caption += (
            " Runs of a bench with the same method, preset and number of classes are one point: "
            "the mean, with one standard deviation in both directions "
            f"(n up to {most})."
        )
    caption += preset_notes(results, current, series)
    repeats.sort(key=lambda group: summarize(group, "seconds").value)
    alt = f"From {_describe_repeats(repeats[0])}, to {_describe_repeats(repeats[-1])}."
    title = "AUS and accuracy against unlearning time"
    return Plot("aus-time", title, caption, alt, _time_panels(timed, series), columns=2)


def _has_time(result: Result) -> bool:
    is_scored = result.aus is not None and result.retain_accuracy is not None
    return is_scored and result.method != "original" and result.is_timed and result.seconds > 0


def _describe_repeats(group: Sequence[Result]) -> str:
    seconds = summarize(group, "seconds").value
    return f"{group[0].label}, {seconds:.2f} s, AUS {summarize(group, 'AUS').value:.3f}"


def _time_panels(timed: Sequence[Result], series: Sequence[Series]) -> list[Panel]:
    times = [result.seconds for result in timed]
    axis = Axis("unlearning time (s)", min(times) / 1.6, max(times) * 1.6, log=True)
    scenarios = scenarios_of(timed)
    panels: list[Panel] = []
    for scenario in scenarios:
        same_scenario = [one.within(scenario) for one in series]
        for score in ("AUS", "Retained accuracy"):
            marks: list[Mark] = [
                _time_points(one, score, min(times) / 1.6) for one in same_scenario if one.results
            ]
            if not panels:
                marks += preset_legend(series)
            title = score
            if len(scenarios) > 1:
                title = f"{scenario.capitalize()}, {score if score == 'AUS' else score.lower()}"
            panels.append(Panel(title, marks, axis, Axis(SCORES[score])))
    return panels


def _time_points(series: Series, score: str, least_time: float) -> Points:
    times = []
    values = []
    texts = []
    for group in group_repeats(series.results):
        time, value = summarize(group, "seconds"), summarize(group, score)
        texts.append(_point_text(group, score, time, value))
        values.append(value)
        # A log axis has no 0.
        low = None if time.low is None else max(time.low, least_time)
        times.append(replace(time, low=low))
    return estimate_points(series.label, times, values, **series.style, texts=texts)


def _point_text(group: Sequence[Result], score: str, time: Estimate, value: Estimate) -> str:
    result = group[0]
    name = result.label_with_preset
    if len(group) == 1:
        accuracy = format_interval(result.retain_accuracy)
        shown = f"AUS {format_number(result.aus)}" if score == "AUS" else accuracy
        request = result.request_label
        return f"{result.name}: {name}, {request}, {result.seconds:.2f} s, {shown}"
    spread = (value.high or value.value) - value.value
    shown = f"{value.value:.1f} ± {spread:.1f} %"
    if score == "AUS":
        shown = f"AUS {value.value:.3f} ± {spread:.3f}"
    count = f"{result.class_count} classes each, " if (result.class_count or 1) > 1 else ""
    seconds = f"{time.value:.2f} ± {(time.high or time.value) - time.value:.2f} s"
    return f"{name}, {count}mean of {len(group)} runs: {seconds}, {shown}"


def plot_class_counts(
    results: Sequence[Result], looks: Mapping[str, Look] | None = None
) -> Plot | None:
    """Plot AUS and accuracies over the number of forgotten classes, mean and spread over runs."""
    current = current_results(results)
    counted = _results_with_class_count(current)
    if len({result.class_count for result in counted}) < 2:
        return None
    series = make_series(counted, looks)
    # A bench can have many methods that remove one class, and few that remove several.
    series = [one for one in series if len(_by_class_count(one)) > 1] or series
    shown: list[Result] = []
    for one in series:
        shown += one.results
    counts = sorted({result.class_count or 0 for result in shown})
    caption = "Mean over runs. With several runs, with one standard deviation to each side."
    caption += preset_notes(results, current, series)
    alt = f"{len(shown)} runs that remove {', '.join(map(str, counts))} classes."
    axis = Axis("classes removed", 0, 1.05 * counts[-1] + 0.3, integers_only=True)
    panels: list[Panel] = []
    for score, label in SCORES.items():
        marks: list[Mark] = []
        for one in series:
            marks += _class_count_marks(one, score)
        if not panels:
            marks += preset_legend(series)
        panels.append(Panel(score, marks, axis, Axis(label)))
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


def _by_class_count(series: Series) -> dict[int, list[Result]]:
    groups: dict[int, list[Result]] = {}
    for result in sorted(series.results, key=lambda result: result.class_count or 0):
        groups.setdefault(result.class_count or 0, []).append(result)
    return groups


def _class_count_marks(series: Series, score: str) -> list[Mark]:
    """Return a line over the number of removed classes, with its points."""
    means = []
    texts = []
    groups = _by_class_count(series)
    for count, group in groups.items():
        means.append(summarize(group, score))
        runs = f"{count} classes, mean of {len(group)} runs"
        texts.append(f"{group[0].label_with_preset}, {runs}: {means[-1].value:.3g}")
    style = series.style | {"size": 7, "texts": texts}
    points = estimate_points(series.label, list(groups), means, **style)
    return [Line("", points.x, points.y, series.color, dashed=series.is_paper), points]
