"""The plots of bias removals: predictions with the square, its SHAP value, and SHAP maps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from duck.report.bias_records import MODEL_LABELS, SHARES, StoredRemoval
from duck.report.class_table import MAX_PLOT_CLASSES
from duck.report.formats import format_interval, format_percent, format_signed
from duck.report.plots import (
    INK,
    MODELS,
    MUTED,
    SYMBOLS,
    Axis,
    Cells,
    Line,
    Mark,
    Panel,
    Picture,
    Plot,
    Points,
)
from duck.report.plots_analysis import MAX_SHAP_IMAGES, block_size, largest_magnitude, sum_blocks
from duck.report.results import shorten_name
from duck.report.samples import stretch_images
from duck.types import Estimate

LOOKS = dict(zip(MODEL_LABELS, zip(MODELS.values(), SYMBOLS, strict=False), strict=True))
"""The colours are those of the original, the unlearned and the retrained model."""
SHIFTS = dict(zip(MODEL_LABELS, (-0.22, 0.0, 0.22), strict=True))
"""The three points of a row are next to each other."""
ROW_HEIGHT = 42
"""Pixels of a row with three points."""
MAP_HEIGHT = 220
MAX_MAP_SIDE = 16
"""Cells of a side. Single pixels often have opposite signs, which would hide the square."""
MAX_REMOVALS = MAX_PLOT_CLASSES
"""Rows of the plot over all removals."""
SHARE_AXIS = Axis("share of images (%)", -3, 103)


def make_plots(removal: StoredRemoval, max_images: int = MAX_SHAP_IMAGES) -> dict[str, Plot]:
    """Return the plots of a bias removal by the name of their section."""
    plots = {
        "shares": plot_shares(removal),
        "square": plot_square(removal),
        "maps": plot_maps(removal, max_images),
    }
    return {
        name: replace(plot, name=f"{removal.anchor}-{name}")
        for name, plot in plots.items()
        if plot is not None
    }


def plot_shares(removal: StoredRemoval) -> Plot:
    """Plot what each model predicts for unseen images with the square and without it."""
    wrong = shorten_name(removal.wrong_class)
    true = shorten_name(removal.true_class)
    ticks = [f"predicted {wrong}", f"predicted {true}", f"{true}, no square"]
    marks = [_share_points(model, [(removal, part) for part in SHARES]) for model in MODEL_LABELS]
    rows = Axis("", ticks=ticks, is_reversed=True)
    panel = Panel("", marks, SHARE_AXIS, rows, ROW_HEIGHT * len(ticks) + 80)
    caption = (
        f"{removal.record.n:,} unseen images of “{removal.true_class}” with the square. The "
        "last row shows the same images without it. Points with 95 % intervals."
    )
    alt = " ".join(_describe_shares(removal, model) for model in MODEL_LABELS)
    title = f"Predictions for unseen images of “{removal.true_class}”"
    return Plot("shares", title, caption, alt, [panel])


def _describe_shares(removal: StoredRemoval, model: str) -> str:
    wrong, right, without = (format_percent(removal.share(model, part).value) for part in SHARES)
    return (
        f"The {MODEL_LABELS[model]} model predicts {removal.wrong_class} for {wrong} of them and "
        f"{removal.true_class} for {right}; without the square {removal.true_class} for {without}."
    )


def plot_all_shares(removals: Sequence[StoredRemoval]) -> Plot | None:
    """Plot the predictions of several bias removals, a row for each."""
    if len(removals) < 2:
        return None
    shown = removals[:MAX_REMOVALS]
    rows = Axis("", ticks=[shorten_name(one.short_name) for one in shown], is_reversed=True)
    height = ROW_HEIGHT * len(shown) + 90
    panels = []
    for part, title in zip(SHARES, _share_titles(shown), strict=True):
        marks = [_share_points(model, [(one, part) for one in shown]) for model in MODEL_LABELS]
        panels.append(Panel(title, marks, SHARE_AXIS, rows, height))
    count = f"{len(shown)}"
    if len(shown) < len(removals):
        count = f"the first {len(shown)} of {len(removals)}"
    caption = (
        f"A row for each of {count} bias removals, on images that no model was trained on. "
        "Points with 95 % intervals."
    )
    alt = " ".join(f"{one.name}: wrong class {_describe_wrong_shares(one)}." for one in shown)
    title = "Predictions for unseen images of the mislabelled class"
    return Plot("bias-shares", title, caption, alt, panels)


def _share_titles(removals: Sequence[StoredRemoval]) -> list[str]:
    pairs = {(removal.true_class, removal.wrong_class) for removal in removals}
    true, wrong = pairs.pop() if len(pairs) == 1 else ("the true class", "the wrong class")
    return [
        f"predicted {wrong}, with the square",
        f"predicted {true}, with the square",
        f"predicted {true}, without it",
    ]


def _describe_wrong_shares(removal: StoredRemoval) -> str:
    return ", ".join(
        f"{label} {format_percent(removal.share(model, 'wrong').value)}"
        for model, label in MODEL_LABELS.items()
    )


def _share_points(model: str, rows: Sequence[tuple[StoredRemoval, str]]) -> Points:
    """Return a point for each row: one share of one removal."""
    values = [removal.share(model, part) for removal, part in rows]
    texts = [
        f"{removal.name}, {MODEL_LABELS[model]}: {format_interval(value)}"
        for (removal, _), value in zip(rows, values, strict=True)
    ]
    return Points(
        MODEL_LABELS[model],
        [100 * value.value for value in values],
        [place + SHIFTS[model] for place in range(len(rows))],
        *LOOKS[model],
        size=7,
        texts=texts,
        x_interval=(
            [100 * (value.low or 0.0) for value in values],
            [100 * (value.high or 0.0) for value in values],
        ),
    )


def plot_square(removal: StoredRemoval) -> Plot | None:
    """Plot the mean and spread of the square's SHAP value, a row for each model."""
    values = {model: value for model in MODEL_LABELS if (value := removal.square_shap(model))}
    if not values:
        return None
    zero = Line("", [0, 0], [-0.5, len(values) - 0.5], MUTED, dashed=True)
    points = [
        _square_point(model, value, place) for place, (model, value) in enumerate(values.items())
    ]
    rows = Axis("", ticks=[MODEL_LABELS[model] for model in values], is_reversed=True)
    panel = Panel("", [zero, *points], Axis("SHAP value (probability per pixel)"), rows, 210)
    pixels = removal.record.patch**2
    caption = (
        f"How much a pixel of the square adds to the probability of “{removal.wrong_class}”: mean "
        f"over {removal.square_shap_count} unseen images, with one standard deviation to each "
        f"side. If the square alone raised it from 0 to 1, the value would be 1/{pixels} = "
        f"{1 / pixels:.4f}. At 0, the dotted line, the square has no influence."
    )
    means = [f"{MODEL_LABELS[model]} {format_signed(one.value)}" for model, one in values.items()]
    alt = f"Mean SHAP value of the square: {', '.join(means)}."
    title = f"How much the square contributes to “{removal.wrong_class}”"
    return Plot("square", title, caption, alt, [panel])


def _square_point(model: str, value: Estimate, place: int) -> Points:
    spread = (value.high or 0.0) - value.value
    text = f"{MODEL_LABELS[model]}: {format_signed(value.value)} ± {spread:.4f}"
    ends = [value.low], [value.high]
    return Points("", [value.value], [place], *LOOKS[model], texts=[text], x_interval=ends)


def plot_maps(removal: StoredRemoval, max_images: int = MAX_SHAP_IMAGES) -> Plot | None:
    """Plot SHAP maps of a few images for each model, with a frame around the square.

    The maps of an image share one colour scale.
    """
    if not removal.maps or not max_images:
        return None
    image_count, height, width = removal.maps["biased"].shape
    shown_count = min(max_images, image_count)
    panels: list[Panel] = []
    for number in range(shown_count):
        panels += _image_panels(removal, number)
    caption = (
        f"Unseen images of “{removal.true_class}” with the square, inside the dotted frame. Red "
        f"pixels raise the probability of “{removal.wrong_class}”, blue pixels lower it. All maps "
        "of an image share one colour scale."
    )
    step = block_size(height, width, MAX_MAP_SIDE)
    if step > 1:
        caption += f" A cell is the sum over {step} × {step} pixels."
    models = ", ".join(MODEL_LABELS.values())
    alt = f"Maps of SHAP values of {shown_count} images for the models {models}."
    title = f"Pixels that contribute to “{removal.wrong_class}” (SHAP)"
    return Plot("maps", title, caption, alt, panels, len(panels) // shown_count)


def _image_panels(removal: StoredRemoval, number: int) -> list[Panel]:
    """Return the picture, if it was stored, and the map of each model."""
    panels = []
    title = f"image {number + 1}"
    if "images" in removal.maps:
        picture = _make_picture(removal.maps["images"][number])
        axes = _image_axes(len(picture.pixels), len(picture.pixels[0]), " ")
        panels.append(Panel(title, [picture], *axes, MAP_HEIGHT))
    maps = {
        model: sum_blocks(removal.maps[model][number].tolist(), MAX_MAP_SIDE)
        for model in MODEL_LABELS
    }
    largest = largest_magnitude(maps)
    for model, values in maps.items():
        axes = _image_axes(len(values), len(values[0]), f"full colour: ±{largest:.2g}")
        cells = Cells(values, signed=True, unit="SHAP", full_value=largest or 1.0)
        marks: list[Mark] = [cells, _square_frame(removal)]
        panels.append(Panel(f"{title}, {MODEL_LABELS[model]}", marks, *axes, MAP_HEIGHT))
    return panels


def _make_picture(image: npt.NDArray[Any]) -> Picture:
    """Return an image scaled to 0..255, as its normalisation is not known; large ones thinned."""
    pixels = stretch_images(torch.from_numpy(np.ascontiguousarray(image))[None])[0]
    step = block_size(*pixels.shape[1:])
    # A grey image has the same value for red, green and blue.
    rgb = pixels[:3] if len(pixels) >= 3 else pixels[:1].expand(3, -1, -1)
    return Picture(rgb[:, ::step, ::step].permute(1, 2, 0).tolist())


def _image_axes(height: int, width: int, label: str) -> tuple[Axis, Axis]:
    x = Axis(label, -0.5, width - 0.5, hidden=True)
    y = Axis("", -0.5, height - 0.5, hidden=True, is_reversed=True)
    return x, y


def _square_frame(removal: StoredRemoval) -> Line:
    """Return a frame around the square, in the top right corner, in cells of the map."""
    height, width = removal.maps["biased"].shape[1:]
    step = block_size(height, width, MAX_MAP_SIDE)
    side = removal.record.patch
    left = (width - side) / step - 0.5
    right = width / step - 0.5
    bottom = side / step - 0.5
    x = [left, right, right, left, left]
    y = [-0.5, -0.5, bottom, bottom, -0.5]
    return Line("", x, y, INK, dashed=True)
