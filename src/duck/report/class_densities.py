"""The density of forgotten against retained classes in feature space, over many models."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from duck.analysis.feature_space import mean_densities
from duck.analysis.paired import PairedTest, paired_test
from duck.report.groups import group_labels
from duck.report.plots import Axis, Panel, Plot, Points, row_panel, row_points
from duck.report.records import StoredRun
from duck.report.results import Result, Splits, mean_and_spread
from duck.report.styles import BLUE, VERMILION

SIDES = (("forgotten classes", VERMILION, -0.15), ("retained classes", BLUE, 0.15))
"""What the two densities of a model are, and their colours."""
REFERENCES = ("original", "retrained")


class Density(NamedTuple):
    """Mean log densities of one model on one split."""

    panel: str
    """Data, model and split."""
    method: str
    request: str
    means: tuple[float, float]
    """Of the forgotten and of the retained classes."""


class DensityTest(NamedTuple):
    """Whether forgotten classes are more or less dense than retained ones, over requests."""

    panel: str
    """Data, model and split."""
    method: str
    result: PairedTest


def plot_densities(runs: Sequence[StoredRun], bench: Sequence[Result] = ()) -> Plot | None:
    """Plot the density of forgotten and of retained classes in each model (DUCK, figure 4C)."""
    densities = _collect(runs, bench)
    rows = [(density.panel, density.method) for density in densities]
    if len(rows) == len(set(rows)):
        return None  # no method has several runs
    titles = dict.fromkeys(density.panel for density in densities)
    panels = [
        _density_panel(title, [density for density in densities if density.panel == title])
        for title in titles
    ]
    caption = (
        "Mean log density of the forgotten and of the retained classes, a dot for each run. "
        "Diamonds are means over runs, with one standard deviation to each side if there are "
        "several. Samples that a model never learned lie far apart. If there are several requests, "
        "the table below tests whether the two differ."
    )
    alt = f"Mean log densities in {len(densities)} models: {', '.join(titles)}."
    title = "Density of forgotten against retained classes"
    return Plot("class-densities", title, caption, alt, panels, 2 if len(panels) > 2 else 0)


def density_tests(runs: Sequence[StoredRun], bench: Sequence[Result] = ()) -> list[DensityTest]:
    """Test forgotten against retained classes, paired over requests.

    Runs that answer the same request are not independent: they count once, by their mean.
    """
    by_row: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for density in _collect(runs, bench):
        by_request = by_row.setdefault((density.panel, density.method), {})
        by_request.setdefault(density.request, []).append(density.means)
    tests = []
    for row, by_request in by_row.items():
        if len(by_request) > 1:
            means = np.array([np.mean(values, 0) for values in by_request.values()])
            tests.append(DensityTest(*row, paired_test(means[:, 0], means[:, 1])))
    return tests


def _collect(runs: Sequence[StoredRun], bench: Sequence[Result]) -> list[Density]:
    """Return the densities of the models of analysed runs and of a bench, in order of the rows."""
    models: list[tuple[Result, str, str, Splits, Sequence[int]]] = []
    for run in runs:
        for name, by_split in run.analysis.density.items():
            method = run.result.label if name == "unlearned" else name
            models.append((run.result, run.anchor, method, by_split, run.forgotten_classes))
    for study in bench:
        if study.densities:
            method = study.label if study.label in REFERENCES else study.label_with_preset
            key = study.comparison_key
            models.append((study, key, method, study.densities, study.forgotten_classes))
    labels = group_labels([result.group for result, *_ in models], name_model=True)
    found: dict[tuple[str, str, str], Density] = {}
    for result, run_id, method, splits, forgotten in models:
        # Several runs share an original or retrained model: it counts once per request.
        model = result.comparison_key if method in REFERENCES else run_id
        for split, densities in splits.items():
            means = mean_densities(densities, forgotten)
            if means:
                panel = f"{labels[result.group]}, {split}"
                density = Density(panel, method, result.comparison_key, means)
                found.setdefault((panel, method, model), density)
    panels = [panel for panel, _, _ in found]

    def order(density: Density) -> tuple[int, bool, bool, str]:
        method = density.method
        return panels.index(density.panel), method == "retrained", method != "original", method

    return sorted(found.values(), key=order)


def _density_panel(title: str, densities: Sequence[Density]) -> Panel:
    """Return the dots and their means, a row for each method."""
    methods = list(dict.fromkeys(density.method for density in densities))
    marks = []
    for side, (name, color, shift) in enumerate(SIDES):
        dots = [density.means[side] for density in densities]
        heights = [methods.index(density.method) + shift for density in densities]
        means = []
        texts = []
        for method in methods:
            values = [density.means[side] for density in densities if density.method == method]
            means.append(mean_and_spread(values))
            texts.append(f"{method}, {name}: {means[-1].value:.2f} ({len(values)} runs)")
        marks.append(Points(name, dots, heights, color, size=4))
        marks.append(row_points(name, means, shift, color, "diamond", texts=texts))
    return row_panel(title, marks, Axis("log density (natural logarithm)"), methods)
