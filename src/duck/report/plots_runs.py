"""The plots over all runs: AUS with its two parts, time, many classes at once, attacks."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from duck.metrics import aus
from duck.report.bench_records import Curve, Density, without_past_settings
from duck.report.class_densities import densities
from duck.report.descriptions import interval, number
from duck.report.groups import group_labels
from duck.report.numbers import Measured, mean_and_spread, spread_ends
from duck.report.plots import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    PALETTE,
    SYMBOLS,
    VERMILION,
    Axis,
    Band,
    Heights,
    Line,
    Mark,
    Panel,
    Plot,
    Points,
    Symbol,
)
from duck.report.plots_run import thinned
from duck.report.records import Entry, Stored, anchor
from duck.scenarios import ForgetRandomClasses

STEPS, CURVE = 24, 31
"""Of the plane of AUS; points of a ROC curve, of which there is one for each run."""
RATES = (
    Axis("false-positive rate", 1e-3, 1, log=True),
    Axis("true-positive rate", 1e-3, 1, log=True),
)
FIXED: dict[str, tuple[str, Symbol]] = {
    "original": (MUTED, "circle"),
    "retrained": (INK, "diamond"),
    "duck": (BLUE, "circle"),
}
SCENARIOS = ("one class", "several classes", "samples")
SCORES = {
    "AUS": "AUS",
    "Kept accuracy": "kept accuracy (%)",
    "Accuracy on forgotten classes": "accuracy (%)",
}
"""Titles of panels, and the labels of their axes."""
HOLLOW = "preset paper"
NEAR = 0.1
"""How far from the ideal, in accuracy lost and in Δ, the methods that do well lie."""
LEFT_OUT = " Results with settings that no preset has now are only in the table."

Looks = Mapping[str, tuple[str, Symbol]]


class Series(NamedTuple):
    """The entries of one method and preset, and how they look."""

    label: str
    preset: str
    color: str
    symbol: Symbol
    is_paper: bool
    """Of the preset `paper`, where the method also has a tuned one."""
    entries: list[Entry]

    @property
    def name(self) -> str:
        return f"{self.label} ({self.preset})" if self.preset else self.label

    def within(self, scenario: str) -> "Series":
        """The same with the entries of one scenario."""
        entries = [entry for entry in self.entries if scenario_of(entry) == scenario]
        return self._replace(entries=entries)


def plots(
    entries: Sequence[Entry],
    runs: Sequence[Stored],
    curves: Sequence[Curve] = (),
    studies: Sequence[Density] = (),
) -> list[Plot]:
    """Accuracies and times compare only where originals were trained alike: plots are by group."""
    looks = look([entry.label for entry in entries])
    drawn: list[Plot] = []
    labels = group_labels([*(entry.group for entry in entries), *(curve.group for curve in curves)])
    for place, (group, label) in enumerate(labels.items(), 1):
        own = [entry for entry in entries if entry.group == group]
        shown = [contour(own, looks), against_time(own, looks), many_classes(own, looks)]
        shown.append(benched([curve for curve in curves if curve.group == group]))
        there = [plot for plot in shown if plot is not None]
        drawn += [_named(plot, place, label) for plot in there] if len(labels) > 1 else there
    over_all = [densities(runs, studies), attacks(runs)]
    return [*drawn, *(plot for plot in over_all if plot is not None)]


def _named(plot: Plot, place: int, label: str) -> Plot:
    return replace(plot, name=anchor(plot.name, place, label), title=f"{plot.title} ({label})")


def look(methods: Sequence[str]) -> dict[str, tuple[str, Symbol]]:
    """Method -> colour and symbol. The yardsticks and DUCK always have theirs; of the others no two of the first 30 are alike."""
    names = sorted(set(methods))
    others = [name for name in names if name not in FIXED]
    found = {
        name: (PALETTE[1:][at % 6], SYMBOLS[at // 6 % len(SYMBOLS)])
        for at, name in enumerate(others)
    }
    return {name: FIXED[name] if name in FIXED else found[name] for name in names}


def scenario_of(entry: Entry) -> str:
    """Which results can be compared: those of one class, of several classes, or of samples."""
    if entry.kind != "class":
        return "samples"
    return "one class" if (entry.removed or 1) == 1 else "several classes"


def _size(entry: Entry) -> tuple[str, int | str | None]:
    """How much goes: only results that agree in it may be averaged."""
    return scenario_of(entry), entry.removed if entry.kind == "class" else entry.asked


def _current(entries: Sequence[Entry]) -> list[Entry]:
    return without_past_settings(entries, lambda entry: (entry.label, _size(entry)))


def _series(entries: Sequence[Entry], looks: Looks | None) -> list[Series]:
    """By method and preset, the preset `paper` first."""
    found = []
    for label, (color, symbol) in (looks or look([entry.label for entry in entries])).items():
        own = [entry for entry in entries if entry.label == label]
        presets = sorted({entry.preset for entry in own})
        is_tuned = any(preset.startswith("tuned") for preset in presets)
        for preset in presets:
            same = [entry for entry in own if entry.preset == preset]
            is_paper = is_tuned and preset.startswith("paper")
            found.append(Series(label, preset, color, symbol, is_paper, same))
    return found


def _notes(given: Sequence[Entry], current: Sequence[Entry], series: Sequence[Series]) -> str:
    """What a caption has to say of presets."""
    hollow = " Hollow: the preset paper of a method that has a tuned one, too."
    words = hollow if any(one.is_paper for one in series) else ""
    return words + (LEFT_OUT if len(current) < len(given) else "")


def _legend_of_presets(series: Sequence[Series]) -> list[Mark]:
    """A name in the legend for hollow symbols, where there are some."""
    is_needed = any(one.is_paper for one in series)
    return [Points(HOLLOW, [], [], MUTED, hollow=True)] if is_needed else []


def contour(entries: Sequence[Entry], looks: Looks | None = None) -> Plot | None:
    """AUS over what is still remembered and what was lost, with the runs drawn in."""
    current = _current(entries)
    placed = [entry for entry in current if None not in (entry.delta, entry.drop, entry.aus)]
    if not placed:
        return None
    series = _series(placed, looks)
    scenarios = [name for name in SCENARIOS if any(scenario_of(entry) == name for entry in placed)]
    panels = []
    for scenario in scenarios:
        title = scenario.capitalize() if len(scenarios) > 1 else ""
        own = [one.within(scenario) for one in series]
        panels += _contour_panels(title, [one for one in own if one.entries])
    panels[0] = replace(panels[0], marks=[*panels[0].marks, *_legend_of_presets(series)])
    best = max(placed, key=lambda entry: entry.scores.get("aus") or 0)
    caption = (
        "Lines of equal AUS: 1 is ideal, at the lower left. Δ is the accuracy on unseen samples of the forgotten classes or, where samples "
        "are forgotten, how far the accuracy on them is from that on unseen ones. "
        "On the dotted line no accuracy is lost: there lies the original, whatever it remembers."
    )
    caption += _notes(entries, current, series)
    highest = f"that of {best.label} on {best.asked}, {number(best.aus)}"
    alt = f"{len(placed)} runs over lines of equal AUS; the highest AUS is {highest}."
    title = "AUS: what is still remembered against what was lost"
    columns = 2 if len(panels) > len(scenarios) else 0
    return Plot("aus-contour", title, caption, alt, panels, columns)


def _contour_panels(title: str, series: Sequence[Series]) -> list[Panel]:
    """All runs; and those near the ideal once more, where they lie too close to be told apart."""
    deltas = [entry.delta or 0.0 for one in series for entry in one.entries]
    drops = [entry.drop or 0.0 for one in series for entry in one.entries]
    right = min(1.0, _beyond(max(deltas), 0.2))
    # AUS is of accuracies: none can be lost or gained beyond all of it, however ruined a run is.
    down, up = -min(1.0, _beyond(-min(drops), 0.05)), min(1.0, _beyond(max(drops), 0.1))
    panels = [_contour_panel(title, series, right, down, up)]
    near = [max(delta, drop) <= NEAR for delta, drop in zip(deltas, drops, strict=True)]
    if sum(near) > 3 and max(right, up) > 2.5 * NEAR:
        words = "Near the ideal" if not title else f"{title}, near the ideal"
        panels.append(_contour_panel(words, series, NEAR, max(down, -NEAR / 2), NEAR))
    return panels


def _contour_panel(
    title: str,
    series: Sequence[Series],
    right: float,
    down: float,
    up: float,
) -> Panel:
    x = [right * at / STEPS for at in range(STEPS + 1)]
    y = [down + (up - down) * at / STEPS for at in range(STEPS + 1)]
    plane = [[aus("class", max(0.0, drop), max(0.0, -drop), delta) for delta in x] for drop in y]
    step = 0.1 if right >= 0.5 else 0.05 if right > NEAR else 0.02
    marks: list[Mark] = [
        Heights(_percents(x), _percents(y), plane, step, "AUS"),
        *_regions(right, down, up),
        Line("accuracy of the original", [0, 100 * right], [0, 0], INK, dashed=True),
    ]
    for one in series:
        deltas = _percents([entry.delta or 0.0 for entry in one.entries])
        drops = _percents([entry.drop or 0.0 for entry in one.entries])
        words = [f"{entry.asked}, AUS {number(entry.aus)}" for entry in one.entries]
        names = [f"{entry.name}: {one.name}" for entry in one.entries]
        texts = [f"{name}, {text}" for name, text in zip(names, words, strict=True)]
        look = one.color, one.symbol
        marks.append(Points(one.label, deltas, drops, *look, 7, texts, hollow=one.is_paper))
    remembered = Axis("Δ: still remembered (points)", -2 * right, 102 * right)
    lost = Axis("accuracy lost (points)", 100 * down, 100 * up)
    return Panel(title, marks, remembered, lost, 400)


def _regions(right: float, down: float, up: float) -> list[Band]:
    """Where AUS is below 0.5 and above 1, as far as the axes reach.

    AUS = (1 - drop) / (1 + delta) has the same value on the line drop = 1 - AUS * (1 + delta).
    """
    found = []
    for name, level, color in (("AUS below 0.5", 0.5, VERMILION), ("AUS above 1", 1.0, GREEN)):
        # The line is cut off where it leaves the axes.
        ends = [(1 - edge) / level - 1 for edge in (down, up)]
        x = sorted({0.0, right, *(end for end in ends if 0 < end < right)})
        border = [min(up, max(down, 1 - level * (1 + delta))) for delta in x]
        low, high = (border, [up] * len(x)) if level < 1 else ([down] * len(x), border)
        if low != high:
            found.append(Band(name, _percents(x), _percents(low), _percents(high), color))
    return found


def against_time(entries: Sequence[Entry], looks: Looks | None = None) -> Plot | None:
    """AUS and kept accuracy over the seconds of the method; the original takes none.

    Lines of a bench with the same method, preset and size of request are one point: their mean.
    """
    current = _current(entries)
    scored = [entry for entry in current if entry.aus and entry.kept]
    timed = [
        entry
        for entry in scored
        if entry.method != "original" and entry.timed and entry.seconds > 0
    ]
    if len(timed) < 2:
        return None
    times = [entry.seconds for entry in timed]
    axis = Axis("unlearning time (s)", min(times) / 1.6, max(times) * 1.6, log=True)
    scenarios = [name for name in SCENARIOS if any(scenario_of(entry) == name for entry in timed)]
    series = _series(timed, looks)
    panels: list[Panel] = []
    for scenario in scenarios:
        for score in ("AUS", "Kept accuracy"):
            marks = [_time_points(one, scenario, score, axis) for one in series]
            words = score if score == "AUS" else score.lower()
            title = f"{scenario.capitalize()}, {words}" if len(scenarios) > 1 else score
            shown: list[Mark] = [mark for mark in marks if mark is not None]
            if not panels:
                shown += _legend_of_presets(series)
            panels.append(Panel(title, shown, axis, Axis(SCORES[score])))
    averages = [(one, group) for one in series for group in _averaged(one.entries)]
    ordered = sorted(averages, key=lambda average: _mean_of(average[1], "seconds"))
    fast, slow = (_average_words(*average) for average in (ordered[0], ordered[-1]))
    caption = "Seconds of the method alone; kept accuracy: on unseen samples of what was to stay. Up and to the left is better."
    most = max(len(group) for _, group in averages)
    if most > 1:
        caption += (
            " Runs of a bench with the same method and preset are one point, several classes by "
            "their number: the mean, with one standard deviation in both directions "
            f"(n up to {most})."
        )
    caption += _notes(entries, current, series)
    title = "AUS and accuracy against unlearning time"
    return Plot("aus-time", title, caption, f"From {fast}, to {slow}.", panels, 2)


def _averaged(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries of which a plot shows the mean: lines of a bench that differ in case alone.

    A stored run stands for itself.
    """
    groups: dict[Hashable, list[Entry]] = {}
    for at, entry in enumerate(entries):
        groups.setdefault((_size(entry), None if entry.preset else at), []).append(entry)
    return list(groups.values())


def _time_points(series: Series, scenario: str, score: str, axis: Axis) -> Points | None:
    groups = _averaged(series.within(scenario).entries)
    if not groups:
        return None
    times = [_spread_of(group, "seconds") for group in groups]
    values = [_spread_of(group, score) for group in groups]
    several = any(len(group) > 1 for group in groups)
    low, high = spread_ends(times)
    points = zip(groups, times, values, strict=True)
    texts = [_point_text(series, group, score, time, value) for group, time, value in points]
    x, y = [time.value for time in times], [value.value for value in values]
    return Points(
        series.label, x, y, series.color, series.symbol, texts=texts,
        # A log axis has no 0 and nothing below.
        x_interval=([max(end, axis.low or 0.0) for end in low], high) if several else None,
        y_interval=spread_ends(values) if several else None, hollow=series.is_paper,
    )  # fmt: skip


def _average_words(series: Series, group: Sequence[Entry]) -> str:
    seconds, score = _mean_of(group, "seconds"), _mean_of(group, "AUS")
    return f"{series.label}, {seconds:.2f} s, AUS {score:.3f}"


def _point_text(
    series: Series,
    group: Sequence[Entry],
    score: str,
    time: Measured,
    value: Measured,
) -> str:
    entry = group[0]
    if len(group) == 1:
        shown = f"AUS {number(entry.aus)}" if score == "AUS" else interval(entry.kept)
        return f"{entry.name}: {series.name}, {entry.asked}, {entry.seconds:.2f} s, {shown}"
    spreads = [(one.high or one.value) - one.value for one in (time, value)]
    unit, digits = ("AUS ", 3) if score == "AUS" else ("", 1)
    shown = f"{unit}{value.value:.{digits}f} ± {spreads[1]:.{digits}f}{'' if unit else ' %'}"
    count = f"{entry.removed} classes each, " if (entry.removed or 1) > 1 else ""
    seconds = f"{time.value:.2f} ± {spreads[0]:.2f} s"
    return f"{series.name}, {count}mean of {len(group)} runs: {seconds}, {shown}"


def many_classes(entries: Sequence[Entry], looks: Looks | None = None) -> Plot | None:
    """AUS and accuracies over the number of classes that go, mean and spread over runs."""
    current = _current(entries)
    scored = [entry for entry in current if entry.aus and entry.kept and entry.gone]
    counted = [entry for entry in scored if entry.removed]
    drawn_at_random = [entry for entry in counted if isinstance(entry.request, ForgetRandomClasses)]
    # Chosen classes are other cases than those of a shuffle: they do not share its means.
    counted = drawn_at_random if len({entry.removed for entry in drawn_at_random}) > 1 else counted
    if len({entry.removed for entry in counted}) < 2:
        return None
    series = _series(counted, looks)
    # A bench may have many methods that remove one class, and few that remove several.
    lines = [one for one in series if len({entry.removed for entry in one.entries}) > 1] or series
    drawn = [entry for one in lines for entry in one.entries]
    counts = sorted({entry.removed or 0 for entry in drawn})
    axis = Axis("classes removed", 0, 1.05 * counts[-1] + 0.3, whole=True)
    panels: list[Panel] = []
    for score, label in SCORES.items():
        marks: list[Mark] = []
        for one in lines:
            marks += _class_count_marks(one, score)
        if not panels:
            marks += _legend_of_presets(lines)
        panels.append(Panel(score, marks, axis, Axis(label)))
    caption = "Mean over runs, with one standard deviation to each side where there are several."
    caption += _notes(entries, current, lines)
    alt = f"{len(drawn)} runs that remove {', '.join(map(str, counts))} classes."
    return Plot("many-classes", "Removing many classes at once", caption, alt, panels)


def _class_count_marks(series: Series, score: str) -> list[Mark]:
    """A line over the number of removed classes, with its points."""
    by_count: dict[int, list[Entry]] = {}
    for entry in sorted(series.entries, key=lambda entry: entry.removed or 0):
        by_count.setdefault(entry.removed or 0, []).append(entry)
    groups = list(by_count.items())
    means = [_spread_of(group, score) for _, group in groups]
    x, y = [float(count) for count, _ in groups], [mean.value for mean in means]
    texts = [
        f"{series.name}, {count} classes, mean of {len(group)} runs: {mean.value:.3g}"
        for (count, group), mean in zip(groups, means, strict=True)
    ]
    return [
        Line("", x, y, series.color, dashed=series.is_paper),
        Points(
            series.label, x, y, series.color, series.symbol, 7, texts,
            y_interval=spread_ends(means), hollow=series.is_paper,
        ),
    ]  # fmt: skip


def attacks(runs: Sequence[Stored]) -> Plot | None:
    """The ROC curves of every audited run, a panel for each attack."""
    audited = [run for run in runs if (run.audit or {}).get("roc")]
    if len(audited) < 2:
        return None
    names = dict.fromkeys(attack for run in audited for attack in (run.audit or {})["roc"])
    panels = []
    for attack in names:
        marks: list[Mark] = [Line("chance", [1e-4, 1], [1e-4, 1], INK, dashed=True)]
        for method, (color, symbol) in look([run.entry.label for run in audited]).items():
            own = [
                (run.audit or {})["roc"].get(attack, {}).get("unlearned")
                for run in audited
                if run.entry.label == method
            ]
            marks += [
                Line(
                    method,
                    thinned(curve["fpr"], CURVE),
                    thinned(curve["tpr"], CURVE),
                    color,
                    dashed=symbol == "square",
                )
                for curve in own
                if curve
            ]
        panels.append(Panel(attack, marks, *RATES))
    caption = "Each line is a run's unlearned model. Near the dotted line the attack is guessing."
    return Plot(
        "attacks",
        "Attacks on every audited run",
        caption,
        f"ROC curves of {len(audited)} runs for {', '.join(names)}.",
        panels,
    )


def benched(curves: Sequence[Curve]) -> Plot | None:
    """The mean ROC curve of every method and preset under the attacks of a bench; as in its tables, settings of the past are left out."""
    curves = without_past_settings(curves, lambda curve: (_place(curve), curve.method))
    if not curves:
        return None
    presets: dict[str, list[str]] = {}
    for curve in sorted(curves, key=lambda curve: curve.preset):
        presets[curve.method] = list(dict.fromkeys([*presets.get(curve.method, []), curve.preset]))
    panels = []
    counts: dict[str, set[int]] = {}
    for place in dict.fromkeys(map(_place, curves)):
        here = [curve for curve in curves if _place(curve) == place]
        marks: list[Mark] = [Line("chance", [1e-4, 1], [1e-4, 1], INK, dashed=True)]
        for method, (color, _) in look([curve.method for curve in here]).items():
            for preset in presets[method]:
                own = [curve for curve in here if (curve.method, curve.preset) == (method, preset)]
                name = f"{method} ({preset})" if len(presets[method]) > 1 else method
                if own:
                    marks += _mean_curve(name, own, color, dashed=preset != presets[method][-1])
                if len(own) > 1:
                    counts.setdefault(place[0], set()).add(len(own))
        panels.append(Panel("{}: {}, {}".format(*place), marks, *RATES))
    caption = (
        "Means over classes or seeds, of forgotten against unseen samples. Near the dotted line the attack is guessing. A line begins "
        "where there are enough unseen samples to show so low a rate." + _band_words(counts)
    )
    alt = f"Mean ROC curves of {len(curves)} attacked models: {', '.join(panel.title for panel in panels)}."
    return Plot("bench-attacks", "Attacks on the models of a bench", caption, alt, panels)


def _place(curve: Curve) -> tuple[str, str, str]:
    """Curves with the same one share a panel."""
    return curve.attack, curve.data, curve.on


def _mean_curve(name: str, curves: Sequence[Curve], color: str, dashed: bool) -> list[Mark]:
    """The mean of ROC curves and, of several, a band of one standard deviation to each side."""
    least = max(1 / curve.others if curve.others else 0 for curve in curves)
    grid = np.logspace(np.log10(max(least, 1e-3)), 0, CURVE)
    rates = np.array([np.interp(grid, curve.fpr, curve.tpr) for curve in curves])
    mean = rates.mean(0)
    line = Line(name, grid.tolist(), mean.tolist(), color, dashed=dashed)
    if len(curves) < 2:
        return [line]
    spread = rates.std(0, ddof=1)
    low, high = np.maximum(mean - spread, 0), np.minimum(mean + spread, 1)
    return [Band(name, grid.tolist(), low.tolist(), high.tolist(), color), line]


def _band_words(counts: Mapping[str, set[int]]) -> str:
    """What the bands are, with the number of curves behind each."""
    if not counts:
        return ""
    ends = {attack: sorted({min(found), max(found)}) for attack, found in counts.items()}
    numbers = {attack: " to ".join(map(str, found)) for attack, found in ends.items()}
    each = ", ".join(f"{number} for {attack}" for attack, number in numbers.items())
    n = next(iter(numbers.values())) if len(set(numbers.values())) == 1 else each
    return f" Bands: one standard deviation to each side, over classes or seeds (n = {n})."


def _value(entry: Entry, score: str) -> float:
    """Of a panel: seconds, AUS, or an accuracy in per cent."""
    if score == "seconds":
        return entry.seconds
    measured = {"AUS": entry.aus, "Kept accuracy": entry.kept}.get(score, entry.gone)
    assert measured is not None
    return measured.value if score == "AUS" else 100 * measured.value


def _spread_of(group: Sequence[Entry], score: str) -> Measured:
    return mean_and_spread([_value(entry, score) for entry in group])


def _mean_of(group: Sequence[Entry], score: str) -> float:
    return _spread_of(group, score).value


def _percents(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]


def _beyond(value: float, least: float) -> float:
    """A little more than all, so that no point lies on the edge."""
    return max(least, 1.15 * value)
