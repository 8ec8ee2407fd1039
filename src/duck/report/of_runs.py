"""The plots over all runs: AUS with its two parts, what it costs in time, many classes at once, densities, attacks side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from duck.analysis.paired import Paired, paired
from duck.metrics import aus
from duck.report.benched import OTHER, Curve
from duck.report.numbers import mean_and_spread
from duck.report.of_run import PIXELS, thinned
from duck.report.plots import BLUE, INK, MUTED, PALETTE, SYMBOLS, VERMILION, Axis, Heights, Line, Mark, Panel, Plot, Points, Symbol
from duck.report.stored import Entry, Stored, anchor
from duck.report.words import interval, number

STEPS, CURVE = 40, 31
"""Of the plane of AUS; points of a ROC curve, of which there is one for each run."""
RATES = Axis("false-positive rate", 1e-3, 1, log=True), Axis("true-positive rate", 1e-3, 1, log=True)
FIXED: dict[str, tuple[str, Symbol]] = {"original": (MUTED, "circle"), "retrained": (INK, "diamond"), "duck": (BLUE, "circle")}


Looks = Mapping[str, tuple[str, Symbol]]


def plots(entries: Sequence[Entry], runs: Sequence[Stored], curves: Sequence[Curve] = ()) -> list[Plot]:
    """Accuracies and times of different data do not compare: each data set has plots of its own."""
    looks, made = look([entry.method for entry in entries]), []
    every = dict.fromkeys([*(entry.data for entry in entries), *(curve.data for curve in curves)])
    for place, data in enumerate(every, 1):
        own = [entry for entry in entries if entry.data == data]
        shown = [contour(own, looks), against_time(own, looks), many_classes(own, looks)]
        shown.append(benched([curve for curve in curves if curve.data == data]))
        made += [plot and (_named(plot, place, data) if len(every) > 1 else plot) for plot in shown]
    return [plot for plot in (*made, densities(runs), attacks(runs)) if plot is not None]


def _named(plot: Plot, place: int, data: str) -> Plot:
    return replace(plot, name=anchor(plot.name, place, data), title=f"{plot.title} ({data})")


def look(methods: Sequence[str]) -> dict[str, tuple[str, Symbol]]:
    """Method -> colour and symbol. The yardsticks and DUCK always have theirs; of the others no two of the first 30 are alike."""
    names = sorted(set(methods))
    others = [name for name in names if name not in FIXED]
    found = {name: (PALETTE[1:][at % 6], SYMBOLS[at // 6 % len(SYMBOLS)]) for at, name in enumerate(others)}
    return {name: FIXED[name] if name in FIXED else found[name] for name in names}


def contour(entries: Sequence[Entry], looks: Looks | None = None) -> Plot | None:
    """AUS over what is still remembered and what was lost, with the runs drawn in."""
    placed = [(entry, entry.delta, entry.drop) for entry in entries if entry.delta is not None and entry.drop is not None and entry.aus]
    if not placed:
        return None
    right = min(1.0, _beyond(max(delta for _, delta, _ in placed), 0.2))
    up, down = _beyond(max(drop for _, _, drop in placed), 0.1), -_beyond(max(-drop for _, _, drop in placed), 0.05)
    deltas = [right * at / STEPS for at in range(STEPS + 1)]
    drops = [down + (up - down) * at / STEPS for at in range(STEPS + 1)]
    plane = [[aus("class", max(0.0, drop), max(0.0, -drop), delta) for delta in deltas] for drop in drops]
    marks: list[Mark] = [
        Heights([100 * delta for delta in deltas], [100 * drop for drop in drops], plane, 0.05 if right < 0.5 else 0.1, "AUS")
    ]
    for method, style in (looks or look([entry.method for entry in entries])).items():
        own = [(entry, delta, drop) for entry, delta, drop in placed if entry.method == method]
        if not own:
            continue
        texts = [f"{entry.name}: {method}, {entry.asked}, AUS {number(entry.aus)}" for entry, _, _ in own]
        marks.append(Points(method, [100 * delta for _, delta, _ in own], [100 * drop for _, _, drop in own], *style, texts=texts))
    panel = Panel(
        "", marks, Axis("Δ: still remembered (points)", -2 * right, 102 * right), Axis("accuracy lost (points)", 100 * down, 100 * up), 400
    )
    best = max(placed, key=lambda place: place[0].scores.get("aus") or 0)[0]
    caption = (
        "Lines of equal AUS: 1 is ideal, at the lower left. Δ is the accuracy on unseen samples of the forgotten classes or, where samples "
        "are forgotten, how far the accuracy on them is from that on unseen ones."
    )
    alt = f"{len(placed)} runs over lines of equal AUS; the highest AUS is that of {best.method} on {best.asked}, {number(best.aus)}."
    return Plot("aus-contour", "AUS: what is still remembered against what was lost", caption, alt, [panel])


def against_time(entries: Sequence[Entry], looks: Looks | None = None) -> Plot | None:
    """AUS and kept accuracy over the seconds of the method; the original takes none and is left out."""
    timed = [entry for entry in entries if entry.method != "original" and entry.seconds > 0 and entry.aus and entry.kept]
    if len(timed) < 2:
        return None
    scores: list[Mark] = []
    accuracies: list[Mark] = []
    for method, style in (looks or look([entry.method for entry in entries])).items():
        own = [entry for entry in timed if entry.method == method]
        if not own:
            continue
        seconds = [entry.seconds for entry in own]
        found = [(entry.aus, entry.kept) for entry in own]
        values = [score.value for score, _ in found if score], [100 * kept.value for _, kept in found if kept]
        texts = [f"{entry.name}: {method}, {entry.asked}, {entry.seconds:.2f} s" for entry in own]
        scores.append(
            Points(
                method,
                seconds,
                values[0],
                *style,
                texts=[f"{text}, AUS {number(entry.aus)}" for text, entry in zip(texts, own, strict=True)],
            )
        )
        accuracies.append(
            Points(
                method,
                seconds,
                values[1],
                *style,
                texts=[f"{text}, {interval(entry.kept)}" for text, entry in zip(texts, own, strict=True)],
            )
        )
    times = [entry.seconds for entry in timed]
    time = Axis("unlearning time (s)", min(times) / 1.6, max(times) * 1.6, log=True)
    panels = [
        Panel("AUS", scores, time, Axis("AUS")),
        Panel("Kept accuracy", accuracies, time, Axis("kept accuracy (%)")),
    ]
    fast, slow = min(timed, key=lambda entry: entry.seconds), max(timed, key=lambda entry: entry.seconds)
    caption = "Seconds of the method alone; kept accuracy: on unseen samples of what was to stay. Up and to the left is better."
    alt = (
        f"From {fast.method}, {fast.seconds:.2f} s, AUS {number(fast.aus)}, to {slow.method}, {slow.seconds:.2f} s, AUS {number(slow.aus)}."
    )
    return Plot("aus-time", "AUS and accuracy against unlearning time", caption, alt, panels)


def many_classes(entries: Sequence[Entry], looks: Looks | None = None) -> Plot | None:
    """AUS and kept accuracy over the number of classes that go, mean and spread over runs."""
    counted = [entry for entry in entries if entry.removed and entry.aus and entry.kept]
    if len({entry.removed for entry in counted}) < 2:
        return None
    panels, count = [], Axis("classes removed", 0, max(entry.removed or 0 for entry in counted) + 0.5, whole=True)
    for title, label in (("AUS", "AUS"), ("Kept accuracy", "kept accuracy (%)")):
        marks: list[Mark] = []
        for method, (color, symbol) in (looks or look([entry.method for entry in entries])).items():
            own = sorted((entry for entry in counted if entry.method == method), key=lambda entry: entry.removed or 0)
            groups = [(count, list(group)) for count, group in groupby(own, key=lambda entry: entry.removed or 0)]
            means = [mean_and_spread([_shown(entry, title) for entry in group]) for _, group in groups]
            x, y = [float(count) for count, _ in groups], [mean.value for mean in means]
            ends = (
                [mean.value if mean.low is None else mean.low for mean in means],
                [mean.value if mean.high is None else mean.high for mean in means],
            )
            texts = [f"{method}, {count} classes, {len(group)} runs" for count, group in groups]
            if groups:
                marks += [Line("", x, y, color), Points(method, x, y, color, symbol, texts=texts, y_interval=ends)]
        panels.append(Panel(title, marks, count, Axis(label)))
    counts = sorted({entry.removed or 0 for entry in counted})
    caption = "Mean over runs, with one standard deviation to each side where there are several."
    alt = f"{len(counted)} runs that remove {', '.join(map(str, counts))} classes."
    return Plot("many-classes", "Removing many classes at once", caption, alt, panels)


class Pair(NamedTuple):
    """Of a model of one run."""

    values: tuple[float, float]
    """Mean log density of forgotten and of retained classes."""
    question: str


Sides = dict[str, Pair]
"""By run."""


class Tested(NamedTuple):
    """Whether forgotten classes lie less, or more, densely than retained ones, over runs."""

    on: str
    """Data, model and split."""
    row: str
    found: Paired


def densities(runs: Sequence[Stored]) -> Plot | None:
    """How densely forgotten and retained classes lie in each model, over the runs that removed classes (DUCK, figure 4C)."""
    found = _dense(runs)
    if not found:
        return None
    panels = [_density_panel(title, rows) for title, rows in found.items()]
    means = [f"{row} {_mean(each, 0):.1f} and {_mean(each, 1):.1f}" for row, each in next(iter(found.values())).items()]
    caption = (
        "Mean log density of the forgotten and of the retained classes, a dot for each run; diamonds: mean over runs, with one standard "
        "deviation to each side where there are several. Samples that a model never learned lie loosely."
    )
    if density_tests(runs):
        caption += " The table below says how often chance alone would part the two as far."
    alt = f"Mean log density of forgotten and of retained classes, {panels[0].title}: {'; '.join(means)}."
    return Plot("class-densities", "Density of forgotten against retained classes", caption, alt, panels)


def density_tests(runs: Sequence[Stored]) -> list[Tested]:
    """Forgotten less retained classes, paired over requests. Runs that answer the same request say little more than one of them."""
    rows = []
    for on, methods in _dense(runs).items():
        for row in _order(methods):
            asked: dict[str, list[tuple[float, float]]] = {}
            for pair in methods[row].values():
                asked.setdefault(pair.question, []).append(pair.values)
            if len(asked) > 1:
                means = np.array([np.mean(same, 0) for same in asked.values()])
                rows.append(Tested(on, row, paired(means[:, 0], means[:, 1])))
    return rows


def _dense(runs: Sequence[Stored]) -> dict[str, dict[str, Sides]]:
    """Data, model and split -> method -> its runs; nothing where no method has several."""
    found: dict[str, dict[str, Sides]] = {}
    for run in runs:
        made = run.run.experiment.training
        alike = {other.entry.data for other in runs if other.run.experiment.training.data == made.data}
        data = run.entry.data if len(alike) > 1 else made.data
        for model, splits in ((run.analysis or {}).get("density") or {}).items():
            row = run.entry.method if model == "unlearned" else model
            # Several runs share an original and a retrained model: these count once for each request.
            key = run.entry.question if row in ("original", "retrained") else run.anchor
            for split, values in splits.items():
                if sides := _sides(values, run.forgotten):
                    pair = Pair(sides, run.entry.question)
                    found.setdefault(f"{data}, {made.model}, {split}", {}).setdefault(row, {}).setdefault(key, pair)
    return found if any(len(each) > 1 for rows in found.values() for each in rows.values()) else {}


def _order(rows: Mapping[str, Sides]) -> list[str]:
    return sorted(rows, key=lambda row: (row == "retrained", row != "original", row))


def _sides(values: Mapping[str, float | None], forgotten: Sequence[int]) -> tuple[float, float] | None:
    """Mean over the forgotten and over the retained classes; none where either has no density."""
    known = {int(label): value for label, value in values.items() if value is not None}
    gone, kept = ([value for label, value in known.items() if (label in forgotten) == side] for side in (True, False))
    return (sum(gone) / len(gone), sum(kept) / len(kept)) if gone and kept else None


def _density_panel(title: str, rows: Mapping[str, Sides]) -> Panel:
    order = _order(rows)
    marks: list[Mark] = []
    for side, (name, color, shift) in enumerate((("forgotten classes", VERMILION, -0.15), ("retained classes", BLUE, 0.15))):
        places = [at + shift for at in range(len(order))]
        dots = [(pair.values[side], place) for row, place in zip(order, places, strict=True) for pair in rows[row].values()]
        marks.append(Points(name, [value for value, _ in dots], [place for _, place in dots], color, size=4))
        means = [mean_and_spread([pair.values[side] for pair in rows[row].values()]) for row in order]
        ends = (
            [mean.value if mean.low is None else mean.low for mean in means],
            [mean.value if mean.high is None else mean.high for mean in means],
        )
        texts = [f"{row}, {name}: {mean.value:.2f} ({len(rows[row])} runs)" for row, mean in zip(order, means, strict=True)]
        marks.append(Points(name, [mean.value for mean in means], places, color, "diamond", texts=texts, x_interval=ends))
    return Panel(title, marks, Axis("log density (natural logarithm)"), Axis("", ticks=order, down=True), PIXELS * len(order) + 90)


def _mean(each: Sides, side: int) -> float:
    return sum(pair.values[side] for pair in each.values()) / len(each)


def attacks(runs: Sequence[Stored]) -> Plot | None:
    """The ROC curves of every audited run, a panel for each attack."""
    audited = [run for run in runs if (run.audit or {}).get("roc")]
    if len(audited) < 2:
        return None
    names = dict.fromkeys(attack for run in audited for attack in (run.audit or {})["roc"])
    panels = []
    for attack in names:
        marks: list[Mark] = [Line("chance", [1e-4, 1], [1e-4, 1], INK, dashed=True)]
        for method, (color, symbol) in look([run.entry.method for run in audited]).items():
            own = [(run.audit or {})["roc"].get(attack, {}).get("unlearned") for run in audited if run.entry.method == method]
            marks += [
                Line(method, thinned(curve["fpr"], CURVE), thinned(curve["tpr"], CURVE), color, dashed=symbol == "square")
                for curve in own
                if curve
            ]
        panels.append(Panel(attack, marks, *RATES))
    caption = "Each line is a run's unlearned model. Near the dotted line the attack is guessing."
    return Plot("attacks", "Attacks on every audited run", caption, f"ROC curves of {len(audited)} runs for {', '.join(names)}.", panels)


def benched(curves: Sequence[Curve]) -> Plot | None:
    """The mean ROC curve of every method and preset under the attacks of a bench; as in its tables, settings of the past are left out."""
    curves = _of_today(curves)
    if not curves:
        return None
    presets: dict[str, list[str]] = {}
    for curve in sorted(curves, key=lambda curve: curve.preset):
        presets[curve.method] = list(dict.fromkeys([*presets.get(curve.method, []), curve.preset]))
    panels = []
    for place in dict.fromkeys((curve.attack, curve.data, curve.on) for curve in curves):
        here = [curve for curve in curves if (curve.attack, curve.data, curve.on) == place]
        marks: list[Mark] = [Line("chance", [1e-4, 1], [1e-4, 1], INK, dashed=True)]
        for method, (color, _) in look([curve.method for curve in here]).items():
            for preset in presets[method]:
                own = [curve for curve in here if (curve.method, curve.preset) == (method, preset)]
                name = f"{method} ({preset})" if len(presets[method]) > 1 else method
                if own:
                    marks.append(Line(name, *_mean_curve(own), color, dashed=preset != presets[method][-1]))
        panels.append(Panel("{}: {}, {}".format(*place), marks, *RATES))
    caption = (
        "Means over classes or seeds, of forgotten against unseen samples. Near the dotted line the attack is guessing. A line begins "
        "where there are enough unseen samples to show so low a rate."
    )
    alt = f"Mean ROC curves of {len(curves)} attacked models: {', '.join(panel.title for panel in panels)}."
    return Plot("bench-attacks", "Attacks on the models of a bench", caption, alt, panels)


def _of_today(curves: Sequence[Curve]) -> list[Curve]:
    """Without those of other settings, where there are some of the settings that the method's presets have now."""
    now = {(curve.attack, curve.data, curve.on, curve.method) for curve in curves if OTHER not in curve.preset}
    return [curve for curve in curves if OTHER not in curve.preset or (curve.attack, curve.data, curve.on, curve.method) not in now]


def _mean_curve(curves: Sequence[Curve]) -> tuple[list[float], list[float]]:
    least = max(1 / curve.others if curve.others else 0 for curve in curves)
    grid = np.logspace(np.log10(max(least, 1e-3)), 0, CURVE)
    return grid.tolist(), np.mean([np.interp(grid, curve.fpr, curve.tpr) for curve in curves], 0).tolist()


def _shown(entry: Entry, what: str) -> float:
    assert entry.aus is not None
    assert entry.kept is not None
    return entry.aus.value if what == "AUS" else 100 * entry.kept.value


def _beyond(value: float, least: float) -> float:
    """A little more than all, so that no point lies on the edge."""
    return max(least, 1.15 * value)
