"""The density of forgotten against retained classes in feature space, over many models."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from duck.analysis.paired import Paired, paired
from duck.report.bench_records import Density, without_past_settings
from duck.report.groups import group_labels
from duck.report.numbers import mean_and_spread, spread_ends
from duck.report.plots import BLUE, VERMILION, Axis, Mark, Panel, Plot, Points
from duck.report.plots_run import PIXELS
from duck.report.records import Stored


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


def densities(runs: Sequence[Stored], studies: Sequence[Density] = ()) -> Plot | None:
    """Density of forgotten and of retained classes in each model (DUCK, figure 4C).

    Drawn over requests, from analysed runs and from the lines of a bench.
    """
    found = _sides_by_panel(runs, studies)
    if not found:
        return None
    panels = [_density_panel(title, rows) for title, rows in found.items()]
    first = next(iter(found.values()))
    means = [f"{row} {_mean(each, 0):.1f} and {_mean(each, 1):.1f}" for row, each in first.items()]
    caption = (
        "Mean log density of the forgotten and of the retained classes, a dot for each run; "
        "diamonds: mean over runs, with one standard deviation to each side where there are "
        "several. Samples that a model never learned lie loosely."
    )
    if density_tests(runs, studies):
        caption += " The table below says how often chance alone would part the two as far."
    about = "Mean log density of forgotten and of retained classes"
    alt = f"{about}, {panels[0].title}: {'; '.join(means)}."
    title = "Density of forgotten against retained classes"
    return Plot("class-densities", title, caption, alt, panels, 2 if len(panels) > 2 else 0)


def density_tests(runs: Sequence[Stored], studies: Sequence[Density] = ()) -> list[Tested]:
    """Forgotten less retained classes, paired over requests.

    Runs that answer the same request say little more than one of them.
    """
    tests = []
    for on, methods in _sides_by_panel(runs, studies).items():
        for row in _order(methods):
            asked: dict[str, list[tuple[float, float]]] = {}
            for pair in methods[row].values():
                asked.setdefault(pair.question, []).append(pair.values)
            if len(asked) > 1:
                means = np.array([np.mean(same, 0) for same in asked.values()])
                tests.append(Tested(on, row, paired(means[:, 0], means[:, 1])))
    return tests


def _sides_by_panel(
    runs: Sequence[Stored],
    studies: Sequence[Density],
) -> dict[str, dict[str, Sides]]:
    """Data, model and split -> method -> its runs; nothing where no method has several."""
    models = [*_analysed_models(runs), *((study.question, study) for study in _current(studies))]
    labels = group_labels([model.group for _, model in models], name_model=True)
    presets: dict[str, set[str]] = {}
    for _, model in models:
        presets.setdefault(model.method, set()).add(model.preset)
    found: dict[str, dict[str, Sides]] = {}
    for key, model in models:
        several = len(presets[model.method]) > 1 and model.preset
        row = f"{model.method} ({model.preset})" if several else model.method
        if model.method in ("original", "retrained"):
            # Several runs share these models: they count once for each request.
            row, key = model.method, model.question
        for split, values in model.splits.items():
            if sides := _sides(values, model.forgotten):
                rows = found.setdefault(f"{labels[model.group]}, {split}", {})
                rows.setdefault(row, {}).setdefault(key, Pair(sides, model.question))
    has_several = any(len(each) > 1 for rows in found.values() for each in rows.values())
    return found if has_several else {}


def _analysed_models(runs: Sequence[Stored]) -> list[tuple[str, Density]]:
    """The models of analysed runs, each with the run it belongs to."""
    found = []
    for run in runs:
        entry = run.entry
        for model, splits in ((run.analysis or {}).get("density") or {}).items():
            method = entry.label if model == "unlearned" else model
            density = Density(entry.group, method, "", entry.question, run.forgotten, splits)
            found.append((run.anchor, density))
    return found


def _current(studies: Sequence[Density]) -> list[Density]:
    return without_past_settings(studies, lambda study: (study.group, study.method))


def _order(rows: Mapping[str, Sides]) -> list[str]:
    return sorted(rows, key=lambda row: (row == "retrained", row != "original", row))


def _sides(
    values: Mapping[str, float | None],
    forgotten: Sequence[int],
) -> tuple[float, float] | None:
    """Mean over the forgotten and over the retained classes; none where either has no density."""
    known = {int(label): value for label, value in values.items() if value is not None}
    forget = [value for label, value in known.items() if label in forgotten]
    retain = [value for label, value in known.items() if label not in forgotten]
    return (sum(forget) / len(forget), sum(retain) / len(retain)) if forget and retain else None


def _density_panel(title: str, rows: Mapping[str, Sides]) -> Panel:
    order = _order(rows)
    marks = [
        *_density_marks(rows, order, 0, "forgotten classes", VERMILION, -0.15),
        *_density_marks(rows, order, 1, "retained classes", BLUE, 0.15),
    ]
    x, y = Axis("log density (natural logarithm)"), Axis("", ticks=order, down=True)
    return Panel(title, marks, x, y, PIXELS * len(order) + 90)


def _density_marks(
    rows: Mapping[str, Sides],
    order: Sequence[str],
    side: int,
    name: str,
    color: str,
    shift: float,
) -> list[Mark]:
    """Dots and their means, a little above or below the middle of their rows."""
    dots: list[float] = []
    heights: list[float] = []
    means, texts = [], []
    for at, row in enumerate(order):
        values = [pair.values[side] for pair in rows[row].values()]
        dots += values
        heights += [at + shift] * len(values)
        means.append(mean_and_spread(values))
        texts.append(f"{row}, {name}: {means[-1].value:.2f} ({len(values)} runs)")
    x, y = [mean.value for mean in means], [at + shift for at in range(len(order))]
    ends = spread_ends(means)
    return [
        Points(name, dots, heights, color, size=4),
        Points(name, x, y, color, "diamond", texts=texts, x_interval=ends),
    ]


def _mean(each: Sides, side: int) -> float:
    return sum(pair.values[side] for pair in each.values()) / len(each)
