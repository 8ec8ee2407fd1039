"""The density of forgotten against retained classes in feature space, over many models."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from duck.analysis.paired import PairedTest, paired_test
from duck.report.bench_records import ClassDensities, drop_past_settings
from duck.report.groups import group_labels
from duck.report.numbers import interval_ends, mean_and_spread
from duck.report.plots import BLUE, VERMILION, Axis, Mark, Panel, Plot, Points
from duck.report.plots_analysis import ROW_HEIGHT
from duck.report.records import StoredRun


class DensityPair(NamedTuple):
    """The densities of one model."""

    values: tuple[float, float]
    """Mean log density of forgotten and of retained classes."""
    comparison_key: str


PairsByRun = dict[str, DensityPair]
PairsByMethod = dict[str, PairsByRun]
PairsByPanel = dict[str, PairsByMethod]
"""Data, model and split -> method -> run -> densities."""


class DensityTest(NamedTuple):
    """Whether forgotten classes are more or less dense than retained ones, over requests."""

    panel: str
    """Data, model and split."""
    method: str
    result: PairedTest


def plot_densities(
    runs: Sequence[StoredRun], densities: Sequence[ClassDensities] = ()
) -> Plot | None:
    """Plot the density of forgotten and of retained classes in each model (DUCK, figure 4C)."""
    pairs = _collect_pairs(runs, densities)
    if not pairs:
        return None
    panels = [_density_panel(title, methods) for title, methods in pairs.items()]
    caption = (
        "Mean log density of the forgotten and of the retained classes, a dot for each run. "
        "Diamonds are means over runs, with one standard deviation to each side if there are "
        "several. Samples that a model never learned lie far apart."
    )
    if density_tests(runs, densities):
        caption += " The table below tests whether the two differ."
    means = [
        f"{method} {_mean(pairs_by_run, 0):.1f} and {_mean(pairs_by_run, 1):.1f}"
        for method, pairs_by_run in next(iter(pairs.values())).items()
    ]
    quantity = "Mean log density of forgotten and of retained classes"
    alt = f"{quantity}, {panels[0].title}: {'; '.join(means)}."
    title = "Density of forgotten against retained classes"
    return Plot("class-densities", title, caption, alt, panels, 2 if len(panels) > 2 else 0)


def density_tests(
    runs: Sequence[StoredRun], densities: Sequence[ClassDensities] = ()
) -> list[DensityTest]:
    """Test forgotten against retained classes, paired over requests.

    Runs that answer the same request are not independent: they count once, by their mean.
    """
    tests = []
    for panel, methods in _collect_pairs(runs, densities).items():
        for method in _sort_methods(methods):
            by_request: dict[str, list[tuple[float, float]]] = {}
            for pair in methods[method].values():
                by_request.setdefault(pair.comparison_key, []).append(pair.values)
            if len(by_request) > 1:
                means = np.array([np.mean(values, 0) for values in by_request.values()])
                tests.append(DensityTest(panel, method, paired_test(means[:, 0], means[:, 1])))
    return tests


def _collect_pairs(runs: Sequence[StoredRun], densities: Sequence[ClassDensities]) -> PairsByPanel:
    """Return the densities by panel, method and run, or nothing if no method has several runs."""
    current = drop_past_settings(densities, lambda found: (found.group, found.method))
    models = [*_analysed_models(runs), *((found.comparison_key, found) for found in current)]
    labels = group_labels([model.group for _, model in models], name_model=True)
    rows = _row_labels([model for _, model in models])
    pairs: PairsByPanel = {}
    for run, model in models:
        row = rows[model.method, model.preset]
        if model.method in ("original", "retrained"):
            # Several runs share these models: they count once for each request.
            run = model.comparison_key
        for split, values in model.splits.items():
            means = _mean_densities(values, model.forgotten_classes)
            if means:
                methods = pairs.setdefault(f"{labels[model.group]}, {split}", {})
                pair = DensityPair(means, model.comparison_key)
                methods.setdefault(row, {}).setdefault(run, pair)
    return pairs if _has_several_runs(pairs) else {}


def _row_labels(models: Sequence[ClassDensities]) -> dict[tuple[str, str], str]:
    """Return the label of each method and preset. The preset is named if a method has several."""
    keys = dict.fromkeys((model.method, model.preset) for model in models)
    labels = {}
    for method, preset in keys:
        has_several = sum(other == method for other, _ in keys) > 1
        is_reference = method in ("original", "retrained")
        name_preset = has_several and preset and not is_reference
        labels[method, preset] = f"{method} ({preset})" if name_preset else method
    return labels


def _has_several_runs(pairs: PairsByPanel) -> bool:
    return any(
        any(len(pairs_by_run) > 1 for pairs_by_run in methods.values())
        for methods in pairs.values()
    )


def _analysed_models(runs: Sequence[StoredRun]) -> list[tuple[str, ClassDensities]]:
    """Return the models of analysed runs, each with the anchor of its run."""
    found = []
    for run in runs:
        result = run.result
        for model, splits in run.densities.items():
            densities = ClassDensities(
                group=result.group,
                method=result.label if model == "unlearned" else model,
                preset="",
                comparison_key=result.comparison_key,
                forgotten_classes=run.forgotten_classes,
                splits=splits,
            )
            found.append((run.anchor, densities))
    return found


def _sort_methods(methods: Mapping[str, PairsByRun]) -> list[str]:
    """Sort by name, with the original first and the retrained model last."""
    return sorted(methods, key=lambda name: (name == "retrained", name != "original", name))


def _mean_densities(
    values: Mapping[str, float | None], forgotten_classes: Sequence[int]
) -> tuple[float, float] | None:
    """Return the mean over forgotten and over retained classes; None if either has no density."""
    known = {int(label): value for label, value in values.items() if value is not None}
    forget = [value for label, value in known.items() if label in forgotten_classes]
    retain = [value for label, value in known.items() if label not in forgotten_classes]
    if not forget or not retain:
        return None
    return sum(forget) / len(forget), sum(retain) / len(retain)


def _density_panel(title: str, methods: PairsByMethod) -> Panel:
    order = _sort_methods(methods)
    rows = [methods[method] for method in order]
    marks = [
        *_density_marks(order, rows, 0, "forgotten classes", VERMILION, -0.15),
        *_density_marks(order, rows, 1, "retained classes", BLUE, 0.15),
    ]
    x = Axis("log density (natural logarithm)")
    y = Axis("", ticks=order, is_reversed=True)
    return Panel(title, marks, x, y, ROW_HEIGHT * len(order) + 90)


def _density_marks(
    methods: Sequence[str],
    rows: Sequence[PairsByRun],
    side: int,
    name: str,
    color: str,
    shift: float,
) -> list[Mark]:
    """Return the dots and their means, a little above or below the middle of their rows."""
    dots: list[float] = []
    heights: list[float] = []
    means = []
    texts = []
    for place, (method, pairs) in enumerate(zip(methods, rows, strict=True)):
        values = [pair.values[side] for pair in pairs.values()]
        dots += values
        heights += [place + shift] * len(values)
        means.append(mean_and_spread(values))
        texts.append(f"{method}, {name}: {means[-1].value:.2f} ({len(values)} runs)")
    x = [mean.value for mean in means]
    y = [place + shift for place in range(len(methods))]
    ends = interval_ends(means)
    return [
        Points(name, dots, heights, color, size=4),
        Points(name, x, y, color, "diamond", texts=texts, x_interval=ends),
    ]


def _mean(pairs: PairsByRun, side: int) -> float:
    return sum(pair.values[side] for pair in pairs.values()) / len(pairs)
