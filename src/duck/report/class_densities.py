"""The density of forgotten against retained classes in feature space, over many models."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from duck.analysis.paired import PairedTest, paired_test
from duck.report.bench_records import current_results
from duck.report.groups import group_labels
from duck.report.looks import BLUE, VERMILION
from duck.report.plots import Axis, Panel, Plot, Points, row_panel, row_points
from duck.report.records import StoredRun
from duck.report.results import Result, Splits, mean_and_spread

SIDES = (("forgotten classes", VERMILION, -0.15), ("retained classes", BLUE, 0.15))
"""What the two densities of a pair are, and how they look."""


Means = tuple[float, float]
"""Mean log density of forgotten and of retained classes."""
Pairs = dict[str, dict[str, dict[str, tuple[str, Means]]]]
"""Data, model and split -> method -> run -> request and densities."""


class DensityTest(NamedTuple):
    """Whether forgotten classes are more or less dense than retained ones, over requests."""

    panel: str
    """Data, model and split."""
    method: str
    result: PairedTest


class Model(NamedTuple):
    """A model with the densities of its classes."""

    run: str
    method: str
    result: Result
    splits: Splits
    forgotten_classes: Sequence[int]


def plot_densities(runs: Sequence[StoredRun], bench: Sequence[Result] = ()) -> Plot | None:
    """Plot the density of forgotten and of retained classes in each model (DUCK, figure 4C)."""
    pairs = _collect_pairs(runs, bench)
    if not pairs:
        return None
    panels = [_density_panel(title, methods) for title, methods in pairs.items()]
    caption = (
        "Mean log density of the forgotten and of the retained classes, a dot for each run. "
        "Diamonds are means over runs, with one standard deviation to each side if there are "
        "several. Samples that a model never learned lie far apart."
    )
    if density_tests(runs, bench):
        caption += " The table below tests whether the two differ."
    means = []
    for method, by_run in next(iter(pairs.values())).items():
        forget, retain = np.mean([means_of_run for _, means_of_run in by_run.values()], 0)
        means.append(f"{method} {forget:.1f} and {retain:.1f}")
    quantity = "Mean log density of forgotten and of retained classes"
    alt = f"{quantity}, {panels[0].title}: {'; '.join(means)}."
    title = "Density of forgotten against retained classes"
    return Plot("class-densities", title, caption, alt, panels, 2 if len(panels) > 2 else 0)


def density_tests(runs: Sequence[StoredRun], bench: Sequence[Result] = ()) -> list[DensityTest]:
    """Test forgotten against retained classes, paired over requests.

    Runs that answer the same request are not independent: they count once, by their mean.
    """
    tests = []
    for panel, methods in _collect_pairs(runs, bench).items():
        for method in _sort_methods(methods):
            by_request: dict[str, list[Means]] = {}
            for request, means_of_run in methods[method].values():
                by_request.setdefault(request, []).append(means_of_run)
            if len(by_request) > 1:
                means = np.array([np.mean(values, 0) for values in by_request.values()])
                tests.append(DensityTest(panel, method, paired_test(means[:, 0], means[:, 1])))
    return tests


def _collect_pairs(runs: Sequence[StoredRun], bench: Sequence[Result]) -> Pairs:
    """Return the densities by panel, method and run, or nothing if no method has several runs."""
    models = _measured_models(runs, bench)
    labels = group_labels([model.result.group for model in models], name_model=True)
    pairs: Pairs = {}
    most_runs = 0
    for model in models:
        key = model.result.comparison_key
        for split, values in model.splits.items():
            means = _mean_densities(values, model.forgotten_classes)
            if means:
                methods = pairs.setdefault(f"{labels[model.result.group]}, {split}", {})
                by_run = methods.setdefault(model.method, {})
                # Several runs share an original or retrained model: it counts once per request.
                is_reference = model.method in ("original", "retrained")
                by_run.setdefault(key if is_reference else model.run, (key, means))
                most_runs = max(most_runs, len(by_run))
    return pairs if most_runs > 1 else {}


def _measured_models(runs: Sequence[StoredRun], bench: Sequence[Result]) -> list[Model]:
    """Return the models of analysed runs and of a bench. A preset is named if there are several."""
    models = []
    for run in runs:
        for name, splits in run.analysis.density.items():
            method = run.result.label if name == "unlearned" else name
            models.append(Model(run.anchor, method, run.result, splits, run.forgotten_classes))
    studies = current_results(
        [result for result in bench if result.densities], lambda result: result.group
    )
    keys = {(model.method, "") for model in models}
    keys |= {(study.label, study.preset) for study in studies}
    for study in studies:
        has_several = sum(method == study.label for method, _ in keys) > 1
        is_reference = study.label in ("original", "retrained")
        name_preset = has_several and not is_reference
        label = study.label_with_preset if name_preset else study.label
        key, densities = study.comparison_key, study.densities or {}
        models.append(Model(key, label, study, densities, study.forgotten_classes))
    return models


def _sort_methods(methods: Mapping[str, object]) -> list[str]:
    """Sort by name, with the original first and the retrained model last."""
    return sorted(methods, key=lambda name: (name == "retrained", name != "original", name))


def _mean_densities(
    values: Mapping[str, float | None], forgotten_classes: Sequence[int]
) -> Means | None:
    """Return the mean over forgotten and over retained classes; None if either has no density."""
    sides: dict[bool, list[float]] = {True: [], False: []}
    for label, value in values.items():
        if value is not None:
            sides[int(label) in forgotten_classes].append(value)
    return (fmean(sides[True]), fmean(sides[False])) if all(sides.values()) else None


def _density_panel(title: str, methods: Mapping[str, Mapping[str, tuple[str, Means]]]) -> Panel:
    """Return the dots and their means, a row for each method."""
    order = _sort_methods(methods)
    marks = []
    for side, (name, color, shift) in enumerate(SIDES):
        dots: list[float] = []
        heights: list[float] = []
        means = []
        texts = []
        for row, method in enumerate(order):
            values = [one[side] for _, one in methods[method].values()]
            dots += values
            heights += [row + shift] * len(values)
            means.append(mean_and_spread(values))
            texts.append(f"{method}, {name}: {means[-1].value:.2f} ({len(values)} runs)")
        marks.append(Points(name, dots, heights, color, size=4))
        marks.append(row_points(name, means, shift, color, "diamond", texts=texts))
    return row_panel(title, marks, Axis("log density (natural logarithm)"), order)
