"""The plots of bias removals: predictions with the square, its SHAP value, and SHAP maps."""

from collections.abc import Sequence

from duck.report.class_table import MAX_PLOT_CLASSES
from duck.report.formats import format_interval, format_signed
from duck.report.page_budget import MAX_SHAP_IMAGES
from duck.report.plots import (
    Axis,
    Line,
    Panel,
    Plot,
    Points,
    name_plots,
    percent,
    row_panel,
    row_points,
)
from duck.report.plots_analysis import block_size, map_panels
from duck.report.records import BIAS_MODELS, SHARES, StoredRemoval
from duck.report.results import shorten_name
from duck.report.styles import INK, MODELS, MUTED
from duck.types import Estimate

STYLES = dict(zip(BIAS_MODELS, MODELS.values(), strict=True))
"""The colours are those of the original, the unlearned and the retrained model."""
SHIFTS = dict(zip(BIAS_MODELS, (-0.22, 0.0, 0.22), strict=True))
"""The three points of a row are next to each other."""
ROW_HEIGHT = 42
"""Pixels of a row with three points."""
MAX_MAP_SIDE = 16
"""Cells of a side. Single pixels often have opposite signs, which would hide the square."""
SHARE_AXIS = Axis("share of images (%)", -3, 103)


def make_plots(removal: StoredRemoval, max_images: int = MAX_SHAP_IMAGES) -> dict[str, Plot]:
    """Return the plots of a bias removal by the name of their section."""
    plots = plot_shares([removal]), plot_square(removal), plot_maps(removal, max_images)
    return name_plots(removal.anchor, plots)


def plot_shares(removals: Sequence[StoredRemoval], name: str = "shares") -> Plot:
    """Plot what each model predicts for unseen images with the square and without it."""
    visible = removals[:MAX_PLOT_CLASSES]
    rows = [shorten_name(removal.name) for removal in visible]
    classes = {(str(one.record.true), str(one.record.wrong)) for one in visible}
    true, wrong = classes.pop() if len(classes) == 1 else ("the true class", "the wrong class")
    titles = (
        f"predicted {wrong}, with the square",
        f"predicted {true}, with the square",
        f"predicted {true}, without it",
    )
    panels = []
    for title, part in zip(titles, SHARES, strict=True):
        marks = [_share_points(model, visible, part) for model in BIAS_MODELS]
        panels.append(row_panel(title, marks, SHARE_AXIS, rows, ROW_HEIGHT))
    caption = "Images of the mislabelled class that no model was trained on, with 95 % intervals."
    if len(visible) < len(removals):
        caption += f" Shown are the first {len(visible)} of {len(removals)} bias removals."
    alt = "Shares for the biased model, after DUCK, and corrected: as in the table."
    title = "Predictions for unseen images of the mislabelled class"
    return Plot(name, title, caption, alt, panels)


def _share_points(model: str, removals: Sequence[StoredRemoval], part: str) -> Points:
    """Return a point for each removal."""
    label = BIAS_MODELS[model]
    shares = [removal.share(model, part) for removal in removals]
    texts = [
        f"{removal.name}, {label}: {format_interval(share)}"
        for removal, share in zip(removals, shares, strict=True)
    ]
    values = [percent(share) for share in shares]
    return row_points(label, values, SHIFTS[model], *STYLES[model], size=7, texts=texts)


def plot_square(removal: StoredRemoval) -> Plot | None:
    """Plot the mean and spread of the square's SHAP value, a row for each model."""
    shap = removal.record.shap
    if shap is None:
        return None
    marks: list[Line | Points] = [Line("", [0, 0], [-0.5, 2.5], MUTED, dashed=True)]
    means = []
    for place, (model, label) in enumerate(BIAS_MODELS.items()):
        mean, spread = shap.mean[model], shap.std[model]
        means.append(f"{label} {format_signed(mean)}")
        value = Estimate(mean, mean - spread, mean + spread)
        texts = [f"{label}: {format_signed(mean)} ± {spread:.4f}"]
        marks.append(row_points("", [value], place, *STYLES[model], texts=texts))
    x = Axis("SHAP value (probability per pixel)")
    panel = row_panel("", marks, x, list(BIAS_MODELS.values()), ROW_HEIGHT)
    pixels = removal.record.patch**2
    caption = (
        f"How much a pixel of the square adds to the probability of “{removal.record.wrong}”: mean "
        f"over {shap.n} unseen images, with one standard deviation to each "
        f"side. If the square alone raised it from 0 to 1, the value would be 1/{pixels} = "
        f"{1 / pixels:.4f}. At 0, the dotted line, the square has no influence."
    )
    alt = f"Mean SHAP value of the square: {', '.join(means)}."
    title = f"How much the square contributes to “{removal.record.wrong}”"
    return Plot("square", title, caption, alt, [panel])


def plot_maps(removal: StoredRemoval, max_images: int = MAX_SHAP_IMAGES) -> Plot | None:
    """Plot SHAP maps of a few images for each model, with a frame around the square.

    The maps of an image share one colour scale.
    """
    if not removal.maps or not max_images:
        return None
    image_count, height, width = removal.maps["biased"].shape
    shown_count = min(max_images, image_count)
    step = block_size((height, width), MAX_MAP_SIDE)
    frame = _square_frame(removal.record.patch / step, width / step)
    panels: list[Panel] = []
    for number in range(shown_count):
        title = f"image {number + 1}"
        maps = {label: removal.maps[model][number] for model, label in BIAS_MODELS.items()}
        panels += map_panels(title, maps, MAX_MAP_SIDE, [frame])
    caption = (
        f"Unseen images of “{removal.record.true}” with the square, inside the dotted frame. Red "
        f"pixels raise the probability of “{removal.record.wrong}”, blue pixels lower it. All maps "
        "of an image share one colour scale."
    )
    if step > 1:
        caption += f" A cell is the sum over {step} × {step} pixels."
    models = ", ".join(BIAS_MODELS.values())
    alt = f"Maps of SHAP values of {shown_count} images for the models {models}."
    title = f"Pixels that contribute to “{removal.record.wrong}” (SHAP)"
    return Plot("maps", title, caption, alt, panels, columns=len(BIAS_MODELS))


def _square_frame(side: float, width: float) -> Line:
    """Return a frame around the square, in the top right corner; lengths in cells of the map."""
    left, right, bottom = width - side - 0.5, width - 0.5, side - 0.5
    x = [left, right, right, left, left]
    return Line("", x, [-0.5, -0.5, bottom, bottom, -0.5], INK, dashed=True)
