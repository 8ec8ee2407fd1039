"""The plots of an analysis: t-SNE, densities of classes and SHAP maps of one run."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from duck.analysis.study import PointCloud
from duck.report.class_table import MAX_PLOT_CLASSES
from duck.report.page_budget import FULL_DETAIL_POINTS, MAX_SHAP_IMAGES
from duck.report.plots import (
    Axis,
    Cells,
    Mark,
    Panel,
    Plot,
    Points,
    round_digits,
    row_panel,
    row_points,
)
from duck.report.records import StoredRun
from duck.report.results import shorten_name
from duck.report.styles import INK, MODELS, PALETTE, SYMBOLS

MAX_DISTINCT_CLASSES = 14
"""Classes that colour and symbol can distinguish."""
MAX_MAP_SIDE = 32
"""Pixels of a side of a SHAP map."""
MODEL_SHIFTS = dict(zip(MODELS, (-0.2, 0.0, 0.2), strict=True))
"""The three points of a row are next to each other."""


def plot_features(stored: StoredRun, max_points: int) -> Plot | None:
    """Plot t-SNE maps, a panel for each model and split, with forgotten samples in front."""
    maps = stored.analysis.tsne
    splits = ("train", "test") if max_points >= FULL_DETAIL_POINTS else ("train",)
    clouds = {
        f"{model}, {split}": maps[model][split]
        for split in splits
        for model in MODELS
        if split in maps.get(model, {})
    }
    if not clouds:
        return None
    axis = Axis(hidden=True)
    panels = [
        Panel(title, _cloud_marks(stored, cloud, max_points), axis, axis, 300)
        for title, cloud in clouds.items()
    ]
    caption = (
        "Each point is a sample. Samples that the model finds similar lie close together (t-SNE, "
        "no unit). Colour and symbol show the class; several of many classes share them. Forgotten "
        "samples have the colour of the text."
    )
    if any(len(cloud.x) > max_points for cloud in clouds.values()):
        caption += f" At most {max_points:,} points per panel are drawn."
    if "test" not in splits and any("test" in model_maps for model_maps in maps.values()):
        caption += " A report on fewer runs also shows test samples."
    alt = f"{len(panels)} clouds of points: {', '.join(clouds)}."
    title = "Feature space: how the model arranges the samples"
    models = {name.partition(",")[0] for name in clouds}
    return Plot("features", title, caption, alt, panels, len(models) if len(models) > 1 else 0)


def _cloud_marks(stored: StoredRun, cloud: PointCloud, max_points: int) -> list[Points]:
    """Return a mark for each class or, of many classes, for each colour; forgotten ones last."""
    is_distinct = len(stored.class_names) <= MAX_DISTINCT_CLASSES
    rows_by_mark: dict[tuple[bool, int], list[int]] = {}
    for row in _sample_rows(cloud.forget, max_points):
        label = cloud.label[row]
        key = cloud.forget[row], label if is_distinct else label % len(PALETTE)
        rows_by_mark.setdefault(key, []).append(row)
    marks = []
    for (forgotten, label), rows in sorted(rows_by_mark.items()):
        class_name = stored.class_name(label) if is_distinct else ""
        marks.append(
            Points(
                "forgotten" if forgotten else class_name,
                [round_digits(cloud.x[row]) for row in rows],
                [round_digits(cloud.y[row]) for row in rows],
                INK if forgotten else PALETTE[label % len(PALETTE)],
                SYMBOLS[label // len(PALETTE) % len(SYMBOLS)],
                size=4,
                texts=[class_name] if is_distinct else [],
            )
        )
    return marks


def _sample_rows(forget: Sequence[bool], max_count: int) -> list[int]:
    """Choose at most this many samples at random; up to half of them are forgotten ones.

    Every n-th sample would leave out classes in data that are sorted in turn.
    """
    generator = random.Random(0)
    forgotten = [row for row, flag in enumerate(forget) if flag]
    retained = [row for row, flag in enumerate(forget) if not flag]
    if len(forget) > max_count:
        forgotten = generator.sample(forgotten, min(len(forgotten), max_count // 2))
    room = max_count - len(forgotten)
    return sorted([*forgotten, *generator.sample(retained, min(len(retained), room))])


def plot_density(stored: StoredRun) -> Plot | None:
    """Plot the log density of each class in feature space, for each model."""
    densities = {model: stored.analysis.density.get(model, {}) for model in MODELS}
    splits = [name for name in ("train", "test") if any(name in one for one in densities.values())]
    if not splits:
        return None
    labels: dict[str, None] = {}
    for by_split in densities.values():
        for split in splits:
            labels |= dict.fromkeys(by_split.get(split, {}))
    forgotten = [label for label in labels if int(label) in stored.forgotten_classes]
    visible = list(dict.fromkeys([*forgotten, *labels]))[:MAX_PLOT_CLASSES]
    names = []
    for label in visible:
        note = " (forgotten)" if label in forgotten else ""
        names.append(shorten_name(stored.class_name(int(label))) + note)
    panels = []
    for split in splits:
        marks = []
        for model, by_split in densities.items():
            values = [by_split.get(split, {}).get(label) for label in visible]
            if any(value is not None for value in values):
                style = MODELS[model]
                marks.append(row_points(model, values, MODEL_SHIFTS[model], *style, texts=[model]))
        panels.append(row_panel(split, marks, Axis("log density (natural logarithm)"), names))
    caption = (
        "How close together the samples of a class lie in the model's feature space. Samples that "
        "a model never learned lie far apart."
    )
    models = ", ".join(stored.analysis.density)
    alt = f"Log density of {len(visible)} classes for {models}, on {' and '.join(splits)} samples."
    return Plot("density", "Density of each class in feature space", caption, alt, panels)


def plot_shap(stored: StoredRun, max_images: int = MAX_SHAP_IMAGES) -> Plot | None:
    """Plot SHAP maps for each model. The maps of an image share one colour scale."""
    panels: list[Panel] = []
    images = stored.shap_images[:max_images]
    for image in images:
        panels += map_panels(image.title, image.maps, MAX_MAP_SIDE)
    if not panels:
        return None
    caption = (
        "Red pixels raise the probability of the class, blue pixels lower it. All maps of an image "
        "share one colour scale."
    )
    alt = f"{len(panels)} maps of SHAP values, one for each image and model."
    title = "Pixels that decide the prediction (SHAP)"
    columns = max(len(image.maps) for image in images)
    return Plot("shap", title, caption, alt, panels, columns if columns > 1 else 0)


def map_panels(
    title: str, maps: Mapping[str, Any], max_side: int, frame: Sequence[Mark] = ()
) -> list[Panel]:
    """Return a panel for the SHAP map of each model. The maps share one colour scale."""
    summed = {model: sum_blocks(values, max_side) for model, values in maps.items()}
    full_value = max(float(np.abs(values).max()) for values in summed.values()) or 1.0
    label = f"full colour: ±{full_value:.2g}"
    panels = []
    for model, values in summed.items():
        cells = Cells(values, signed=True, unit="SHAP", full_value=full_value)
        x = Axis(label, -0.5, len(values[0]) - 0.5, hidden=True)
        y = Axis("", -0.5, len(values) - 0.5, hidden=True, is_reversed=True)
        panels.append(Panel(f"{title}, {model}", [cells, *frame], x, y, 220))
    return panels


def sum_blocks(values: Any, max_side: int) -> list[list[float]]:
    """Sum a map over square blocks, so that no side is longer; the total stays the same."""
    summed = np.asarray(values, np.float64)
    step = block_size(summed.shape, max_side)
    for axis in (0, 1):
        summed = np.add.reduceat(summed, range(0, summed.shape[axis], step), axis)
    return [[round_digits(value) for value in row] for row in summed.tolist()]


def block_size(shape: Sequence[int], max_side: int) -> int:
    """Return the side of the blocks that `sum_blocks` makes of an image."""
    return -(-max(shape) // max_side)
