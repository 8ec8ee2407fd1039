"""The plots over all runs: AUS, time, number of classes, densities and attacks."""

from collections.abc import Sequence
from dataclasses import replace

from duck.report.class_densities import plot_densities
from duck.report.groups import group_labels
from duck.report.plots import Axis, Line, Mark, Panel, Plot, Points, centres
from duck.report.plots_attacks import plot_all_attacks, plot_bench_attacks
from duck.report.plots_contour import plot_contour
from duck.report.records import StoredRun, make_anchor
from duck.report.results import Result
from duck.report.series import (
    HOLLOW_NOTE,
    Series,
    by_scenario,
    group_repeats,
    make_series,
    preset_legend,
    results_of,
    select,
    split_by,
    summarize,
)
from duck.scenarios import ForgetRandomClasses

SCORES = {
    "AUS": "AUS",
    "Retained accuracy": "retained accuracy (%)",
    "Accuracy on forgotten classes": "accuracy (%)",
}
"""Titles of panels, and the labels of their axes."""


def make_plots(runs: Sequence[StoredRun], results: Sequence[Result]) -> list[Plot]:
    """Return the plots over all runs, separately for each group of comparable results."""
    unlearnings = make_series([result for result in results if result.is_unlearning])
    attacks = make_series([result for result in results if result.roc])
    labels = group_labels(result.group for result in results_of([*unlearnings, *attacks]))
    unlearnings_by_group = split_by(unlearnings, lambda result: result.group)
    attacks_by_group = split_by(attacks, lambda result: result.group)
    plots: list[Plot] = []
    for number, (group, label) in enumerate(labels.items(), 1):
        same_group = unlearnings_by_group.get(group, [])
        group_plots = (
            plot_contour(same_group),
            plot_time(same_group),
            plot_class_counts(same_group),
            plot_bench_attacks(attacks_by_group.get(group, [])),
        )
        for plot in filter(None, group_plots):
            if len(labels) > 1:
                name = make_anchor(plot.name, number, label)
                plot = replace(plot, name=name, title=f"{plot.title} ({label})")
            plots.append(plot)
    over_all = plot_densities(runs, results), plot_all_attacks(runs)
    return [*plots, *filter(None, over_all)]


def plot_time(series: Sequence[Series]) -> Plot | None:
    """Plot AUS and retained accuracy over the seconds of the method.

    Results of a bench with the same method, preset and size of request are one point, their mean.
    """
    timed = select(series, _has_time)
    times = [result.seconds for result in results_of(timed)]
    if len(times) < 2:
        return None
    repeats: list[list[Result]] = []
    for one in timed:
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
    marks = preset_legend(timed)
    caption += HOLLOW_NOTE * bool(marks)
    least_time = min(times) / 1.6
    axis = Axis("unlearning time (s)", least_time, max(times) * 1.6, log=True)
    panels: list[Panel] = []
    for scenario, part in by_scenario(timed).items():
        for score in ("AUS", "Retained accuracy"):
            marks += [_time_points(one, score, least_time) for one in part]
            title = f"{scenario}: {score}" if scenario else score
            panels.append(Panel(title, marks, axis, Axis(SCORES[score])))
            marks = []
    alt = f"{len(repeats)} points, from {min(times):.2f} to {max(times):.2f} s."
    title = "AUS and accuracy against unlearning time"
    return Plot("aus-time", title, caption, alt, panels, columns=2)


def _has_time(result: Result) -> bool:
    is_scored = result.aus is not None and result.retain_accuracy is not None
    return is_scored and result.method != "original" and result.is_timed and result.seconds > 0


def _time_points(series: Series, score: str, least_time: float) -> Points:
    times = []
    values = []
    texts = []
    for group in group_repeats(series.results):
        time, value = summarize(group, "seconds"), summarize(group, score)
        first = group[0]
        runs = first.name if len(group) == 1 else f"mean of {len(group)} runs"
        numbers = f"{time.value:.2f} s, {score} {value.value:.3g}"
        texts.append(f"{first.label_with_preset}, {first.request_label}, {runs}: {numbers}")
        values.append(value)
        # A log axis has no 0.
        low = None if time.low is None else max(time.low, least_time)
        times.append(replace(time, low=low))
    return series.points(times, values, texts)


def plot_class_counts(series: Sequence[Series]) -> Plot | None:
    """Plot AUS and accuracies over the number of forgotten classes, mean and spread over runs."""
    counted = select(series, _has_class_count)
    # A user's choice of classes is another case than a random one and must not share its mean.
    random = select(counted, lambda one: isinstance(one.request, ForgetRandomClasses))
    counted = random if len(_class_counts(random)) > 1 else counted
    # A bench can have many methods that remove one class, and few that remove several.
    counted = [one for one in counted if len(_class_counts([one])) > 1] or counted
    counts = _class_counts(counted)
    if len(counts) < 2:
        return None
    axis = Axis("classes removed", 0, 1.05 * counts[-1] + 0.3, integers_only=True)
    marks = preset_legend(counted)
    caption = "Mean over runs. With several runs, with one standard deviation to each side."
    caption += HOLLOW_NOTE * bool(marks)
    panels: list[Panel] = []
    for score, label in SCORES.items():
        for one in counted:
            marks += _class_count_marks(one, score)
        panels.append(Panel(score, marks, axis, Axis(label)))
        marks = []
    total = len(results_of(counted))
    alt = f"{total} runs that remove {', '.join(map(str, counts))} classes."
    return Plot("many-classes", "Removing many classes at once", caption, alt, panels)


def _has_class_count(result: Result) -> bool:
    scores = result.aus, result.retain_accuracy, result.forget_accuracy
    return None not in scores and result.class_count is not None


def _class_counts(series: Sequence[Series]) -> list[int]:
    return sorted({result.class_count or 0 for result in results_of(series)})


def _class_count_marks(series: Series, score: str) -> list[Mark]:
    """Return a line over the number of removed classes, with its points."""
    means = []
    texts = []
    counts = _class_counts([series])
    for count in counts:
        group = [result for result in series.results if result.class_count == count]
        means.append(summarize(group, score))
        runs = f"{count} classes, mean of {len(group)} runs"
        texts.append(f"{group[0].label_with_preset}, {runs}: {means[-1].value:.3g}")
    points = series.points(counts, means, texts, size=7)
    return [Line("", counts, centres(means), series.color, dashed=series.is_paper), points]
