"""The plots of an analysis: t-SNE, densities of classes and SHAP maps of one run."""

import random
from collections.abc import Mapping, Sequence
from itertools import chain

from duck.analysis.feature_space import Densities
from duck.analysis.study import PointCloud, ShapImage
from duck.report.class_table import MAX_PLOT_CLASSES, class_name
from duck.report.plots import (
    INK,
    MODELS,
    PALETTE,
    SYMBOLS,
    Axis,
    Cells,
    Panel,
    Plot,
    Points,
)
from duck.report.records import StoredRun
from duck.report.results import shorten_name

FULL_DETAIL_POINTS = 60
"""With fewer points per cloud or curve, a page of many runs leaves out the less important panels:
clouds of test samples and ROC curves on linear axes."""
MAX_DISTINCT_CLASSES = 14
"""Classes that colour and symbol can distinguish."""
MAX_SHAP_IMAGES = 6
MAX_MAP_SIDE = 32
"""Pixels of a side of a SHAP map."""
ROW_HEIGHT = 26
"""Pixels."""
HIDDEN_AXIS = Axis("", hidden=True)
MODEL_SHIFTS = dict(zip(MODELS, (-0.2, 0.0, 0.2), strict=True))
"""The three points of a row are next to each other."""
MODEL_SYMBOLS = dict(zip(MODELS, SYMBOLS, strict=False))


def plot_features(stored: StoredRun, max_points: int) -> Plot | None:
    """Plot t-SNE maps, a panel for each model and split, with forgotten samples in front."""
    maps = {} if stored.analysis is None else stored.analysis.tsne
    splits = ("train", "test") if max_points >= FULL_DETAIL_POINTS else ("train",)
    panels = []
    is_thinned = False
    models = set()
    for split in splits:
        for model in MODELS:
            cloud = maps.get(model, {}).get(split)
            if cloud:
                models.add(model)
                is_thinned = is_thinned or len(cloud.x) > max_points
                marks = _cloud_marks(stored, cloud, max_points)
                panels.append(Panel(f"{model}, {split}", marks, HIDDEN_AXIS, HIDDEN_AXIS, 300))
    if not panels:
        return None
    caption = (
        "Each point is a sample. Samples that the model finds similar lie close together (t-SNE, "
        f"no unit). {_describe_colours(len(stored.class_names))} Forgotten samples have the colour "
        "of the text."
    )
    if is_thinned:
        caption += f" At most {max_points:,} points per panel are drawn."
    if "test" not in splits and any("test" in clouds for clouds in maps.values()):
        caption += " A report on fewer runs also shows test samples."
    alt = f"{len(panels)} clouds of points: {', '.join(panel.title for panel in panels)}."
    title = "Feature space: how the model arranges the samples"
    return Plot("features", title, caption, alt, panels, len(models) if len(models) > 1 else 0)


def _describe_colours(class_count: int) -> str:
    if class_count <= len(PALETTE):
        return "Each class has its own colour."
    if class_count <= MAX_DISTINCT_CLASSES:
        return "Each class has its own colour and symbol."
    return "Several classes share a colour."


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
        class_label = class_name(stored, label) if is_distinct else "retained"
        marks.append(
            Points(
                "forgotten" if forgotten else class_label,
                [round_to_three_digits(cloud.x[row]) for row in rows],
                [round_to_three_digits(cloud.y[row]) for row in rows],
                INK if forgotten else PALETTE[label % len(PALETTE)],
                SYMBOLS[label // len(PALETTE) % len(SYMBOLS)],
                size=4,
                texts=[class_name(stored, label)] if is_distinct else [],
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


def round_to_three_digits(value: float) -> float:
    """Round a coordinate, because a page has thousands of them."""
    return float(f"{value:.3g}")


def plot_density(stored: StoredRun) -> Plot | None:
    """Plot the log density of each class in feature space, for each model."""
    densities = stored.densities
    known = [densities.get(model, {}) for model in MODELS]
    splits = [split for split in ("train", "test") if any(split in found for found in known)]
    if not splits:
        return None
    labels = _density_labels(stored, known, splits)
    ticks = [_density_tick(stored, label) for label in labels]
    rows = Axis("", ticks=ticks, is_reversed=True)
    height = ROW_HEIGHT * len(labels) + 90
    panels = []
    for split in splits:
        marks = _density_marks(densities, split, labels)
        panels.append(Panel(split, marks, Axis("log density (natural logarithm)"), rows, height))
    caption = (
        "How close together the samples of a class lie in the model's feature space. Samples that "
        "a model never learned lie far apart."
    )
    models = ", ".join(densities)
    alt = f"Log density of {len(labels)} classes for {models}, on {' and '.join(splits)} samples."
    return Plot("density", "Density of each class in feature space", caption, alt, panels)


def _density_labels(
    stored: StoredRun, densities: Sequence[Densities], splits: Sequence[str]
) -> list[str]:
    """Return the classes with a density, forgotten ones first, as many as a plot shows."""
    labels: dict[str, None] = {}
    for found in densities:
        for split in splits:
            labels |= dict.fromkeys(found.get(split, {}))
    order = sorted(labels, key=lambda label: int(label) not in stored.forgotten_classes)
    return order[:MAX_PLOT_CLASSES]


def _density_tick(stored: StoredRun, label: str) -> str:
    note = " (forgotten)" if int(label) in stored.forgotten_classes else ""
    return shorten_name(class_name(stored, int(label))) + note


def _density_marks(
    densities: Mapping[str, Densities], split: str, labels: Sequence[str]
) -> list[Points]:
    marks = []
    for model, color in MODELS.items():
        found = densities.get(model, {}).get(split, {})
        values = [found.get(label) for label in labels]
        if any(value is not None for value in values):
            heights = [place + MODEL_SHIFTS[model] for place in range(len(labels))]
            symbol = MODEL_SYMBOLS[model]
            marks.append(Points(model, values, heights, color, symbol, texts=[model]))
    return marks


def plot_shap(stored: StoredRun, max_images: int = MAX_SHAP_IMAGES) -> Plot | None:
    """Plot SHAP maps for each model. The maps of an image share one colour scale."""
    panels: list[Panel] = []
    columns = 0
    for image in shown_shap_images(stored)[:max_images]:
        columns = max(columns, len(image.maps))
        panels += _shap_panels(image)
    if not panels:
        return None
    caption = (
        "Red pixels raise the probability of the class, blue pixels lower it. All maps of an image "
        "share one colour scale."
    )
    alt = f"{len(panels)} maps of SHAP values, one for each image and model."
    title = "Pixels that decide the prediction (SHAP)"
    return Plot("shap", title, caption, alt, panels, columns if columns > 1 else 0)


def _shap_panels(image: ShapImage) -> list[Panel]:
    maps = {model: sum_blocks(values) for model, values in image.maps.items()}
    full_value = largest_magnitude(maps)
    panels = []
    for model, values in maps.items():
        cells = Cells(values, signed=True, unit="SHAP", full_value=full_value)
        y = Axis("", -0.5, len(values) - 0.5, is_reversed=True, hidden=True)
        panels.append(Panel(f"{image.title}, {model}", [cells], HIDDEN_AXIS, y, 260))
    return panels


def shown_shap_images(stored: StoredRun) -> list[ShapImage]:
    """Return the images whose SHAP maps the page may show: those that were not forgotten.

    A map shows the outline of its image. Older files do not say which images were forgotten:
    their maps are withheld too.
    """
    return [image for image in _shap_images(stored) if image.forgotten is False]


def withheld_shap_images(stored: StoredRun) -> list[ShapImage]:
    """Return the images whose SHAP maps the page must not show."""
    return [image for image in _shap_images(stored) if image.forgotten is not False]


def _shap_images(stored: StoredRun) -> list[ShapImage]:
    if stored.analysis is None or stored.analysis.shap is None:
        return []
    return stored.analysis.shap.images


def largest_magnitude(maps: Mapping[str, Sequence[Sequence[float]]]) -> float:
    """Return the largest absolute value of several maps, for a common colour scale."""
    rows = chain.from_iterable(maps.values())
    return max(max(map(abs, row)) for row in rows)


def sum_blocks(values: Sequence[Sequence[float]], side: int = MAX_MAP_SIDE) -> list[list[float]]:
    """Sum a map over square blocks, so that no side is longer; the total stays the same."""
    step = block_size(len(values), len(values[0]), side)
    starts = range(0, len(values[0]), step)
    summed = []
    for first in range(0, len(values), step):
        lines = values[first : first + step]
        sums = [sum(sum(line[start : start + step]) for line in lines) for start in starts]
        summed.append([round_to_three_digits(value) for value in sums])
    return summed


def block_size(height: int, width: int, side: int = MAX_MAP_SIDE) -> int:
    """Return the side of the blocks that `sum_blocks` makes of an image."""
    return -(-max(height, width) // side)
