"""The plots of bias removals: what the models call images with the square, what the square means to them, and where they look."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from duck.report.bias_records import SHARES, THREE, Removal
from duck.report.descriptions import interval, percent, signed
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
from duck.report.plots_run import IMAGES, SHOWN, block, pooled
from duck.report.records import cut
from duck.report.samples import stretched

LOOKS = dict(zip(THREE, zip(MODELS.values(), SYMBOLS, strict=False), strict=True))
"""The colours are those of the original, the unlearned and the retrained model."""
SHIFTS = dict(zip(THREE, (-0.22, 0.0, 0.22), strict=True))
"""Beside each other within a row."""
ROW, MAP = 42, 220
"""Height of a row with three points, and of a map."""
SIDE = 16
"""Most cells of a side: neighbouring pixels of opposite signs would hide a square, which is several pixels wide."""


def plots(removal: Removal, most_images: int = IMAGES) -> dict[str, Plot]:
    """By the section they belong to."""
    made = {
        "shares": shares(removal),
        "square": square(removal),
        "maps": maps(removal, most_images),
    }
    return {
        name: replace(plot, name=f"{removal.anchor}-{name}")
        for name, plot in made.items()
        if plot is not None
    }


def shares(removal: Removal) -> Plot:
    """What each model calls unseen images with the square and, for comparison, without."""
    true, wrong = cut(removal.true), cut(removal.wrong)
    ticks = [f"called {wrong}", f"called {true}", "the same, no square"]
    marks = [_points(model, [(removal, part) for part in SHARES]) for model in THREE]
    panel = Panel(
        "",
        marks,
        Axis("share of images (%)", -3, 103),
        Axis("", ticks=ticks, down=True),
        ROW * len(ticks) + 80,
    )
    caption = (
        f"{removal.found['n']:,} unseen images of “{removal.true}” with the square and, in the last row, the same images without it. "
        "Points with 95 % intervals."
    )
    alt = " ".join(
        f"The {word} model calls {percent(removal.share(model, 'wrong').value)} of them {removal.wrong} and "
        f"{percent(removal.share(model, 'right').value)} {removal.true}; without the square "
        f"{percent(removal.share(model, 'right_without_patch').value)} {removal.true}."
        for model, word in THREE.items()
    )
    return Plot(
        "shares", f"What the models call unseen images of “{removal.true}”", caption, alt, [panel]
    )


def all_shares(removals: Sequence[Removal]) -> Plot | None:
    """The same of several removals, a row for each."""
    if len(removals) < 2:
        return None
    shown = removals[:SHOWN]
    pairs = {(removal.true, removal.wrong) for removal in shown}
    true, wrong = pairs.pop() if len(pairs) == 1 else ("rightly", "wrongly")
    titles = [
        f"called {wrong}, with the square",
        f"called {true}, with the square",
        f"called {true}, without it",
    ]
    rows = Axis("", ticks=[cut(removal.short) for removal in shown], down=True)
    panels = []
    for part, title in zip(SHARES, titles, strict=True):
        marks = [_points(model, [(removal, part) for removal in shown]) for model in THREE]
        panels.append(
            Panel(title, marks, Axis("share of images (%)", -3, 103), rows, ROW * len(shown) + 90)
        )
    these = (
        f"each of {len(shown)}"
        if len(shown) == len(removals)
        else f"each of the first {len(shown)} of {len(removals)}"
    )
    caption = f"A row for {these} bias removals, on images that no model had seen. Points with 95 % intervals."
    alt = " ".join(
        f"{removal.name}: called wrongly {_before_and_after(removal)}." for removal in shown
    )
    return Plot(
        "bias-shares",
        "What the models call unseen images of the mislabelled class",
        caption,
        alt,
        panels,
    )


def square(removal: Removal) -> Plot | None:
    """Mean and spread of the square's SHAP value, a row for each model."""
    values = {model: value for model in THREE if (value := removal.square(model))}
    if not values:
        return None
    zero = Line("", [0, 0], [-0.5, len(values) - 0.5], MUTED, dashed=True)
    marks: list[Mark] = [zero]
    for at, (model, value) in enumerate(values.items()):
        word = THREE[model]
        text = f"{word}: {signed(value.value)} ± {(value.high or 0.0) - value.value:.4f}"
        marks.append(
            Points(
                "",
                [value.value],
                [at],
                *LOOKS[model],
                texts=[text],
                x_interval=([value.low], [value.high]),
            )
        )
    rows = Axis("", ticks=[THREE[model] for model in values], down=True)
    panel = Panel("", marks, Axis("SHAP value (probability a pixel)"), rows, 210)
    pixels = removal.found["patch"] ** 2
    caption = (
        f"What a pixel of the square adds to the probability of “{removal.wrong}”: mean over {removal.found['shap']['n']} unseen images, "
        f"one standard deviation to each side. A square that alone takes it from 0 to 1 has 1/{pixels} = {1 / pixels:.4f}; "
        "0, the dotted line, means nothing."
    )
    alt = ", ".join(f"{THREE[model]} {signed(value.value)}" for model, value in values.items())
    return Plot(
        "square",
        f"How much the square speaks for “{removal.wrong}”",
        caption,
        f"Mean SHAP value of the square: {alt}.",
        [panel],
    )


def maps(removal: Removal, most_images: int = IMAGES) -> Plot | None:
    """SHAP maps of a few images, model by model; those of an image share their scale, and a frame is where the square is."""
    if not removal.maps or not most_images:
        return None
    pictures = removal.maps.get("images")
    count, height, width = removal.maps["biased"].shape
    frame, step = _frame(removal, height, width), block(height, width, SIDE)
    panels = []
    for at in range(min(most_images, count)):
        if pictures is not None:
            picture = _picture(pictures[at])
            panels.append(
                Panel(
                    f"image {at + 1}",
                    [picture],
                    *_sides(len(picture.pixels), len(picture.pixels[0]), " "),
                    MAP,
                )
            )
        found = {model: pooled(removal.maps[model][at].tolist(), SIDE) for model in THREE}
        most = max(abs(value) for values in found.values() for row in values for value in row)
        for model, values in found.items():
            across, down = _sides(len(values), len(values[0]), f"full colour: ±{most:.2g}")
            marks: list[Mark] = [Cells(values, signed=True, unit="SHAP", most=most or 1.0), frame]
            panels.append(Panel(f"image {at + 1}, {THREE[model]}", marks, across, down, MAP))
    caption = (
        f"Unseen images of “{removal.true}” with the square, which the dotted frame shows. Red pixels raise the probability of "
        f"“{removal.wrong}”, blue ones lower it; the same colour means the same in all maps of an image."
    )
    if step > 1:
        caption += f" A cell is the sum over {step} × {step} pixels."
    columns = len(THREE) + (pictures is not None)
    alt = f"Maps of SHAP values of {len(panels) // columns} images for the models {', '.join(THREE.values())}."
    return Plot(
        "maps", f"Which pixels speak for “{removal.wrong}” (SHAP)", caption, alt, panels, columns
    )


def _points(model: str, rows: Sequence[tuple[Removal, str]]) -> Points:
    """A point for each row: that share of that removal."""
    values = [removal.share(model, part) for removal, part in rows]
    return Points(
        THREE[model],
        [100 * value.value for value in values],
        [at + SHIFTS[model] for at in range(len(rows))],
        *LOOKS[model],
        size=7,
        texts=[
            f"{removal.name}, {THREE[model]}: {interval(value)}"
            for (removal, _), value in zip(rows, values, strict=True)
        ],
        x_interval=(
            [100 * (value.low or 0.0) for value in values],
            [100 * (value.high or 0.0) for value in values],
        ),
    )


def _before_and_after(removal: Removal) -> str:
    return ", ".join(
        f"{word} {percent(removal.share(model, 'wrong').value)}" for model, word in THREE.items()
    )


def _picture(image: npt.NDArray[Any]) -> Picture:
    """Stretched to 0..255, as no model's normalisation is known here; of a large one every so many pixels."""
    whole = stretched(torch.from_numpy(np.ascontiguousarray(image))[None])[0]
    step = block(*whole.shape[1:])
    some = (whole[:3] if len(whole) >= 3 else whole[:1].expand(3, -1, -1))[:, ::step, ::step]
    return Picture(some.permute(1, 2, 0).tolist())


def _sides(height: int, width: int, label: str) -> tuple[Axis, Axis]:
    return Axis(label, -0.5, width - 0.5, hidden=True), Axis(
        "", -0.5, height - 0.5, hidden=True, down=True
    )


def _frame(removal: Removal, height: int, width: int) -> Line:
    """Around the square, in the top right corner, in cells of the map."""
    step, side = block(height, width, SIDE), removal.found["patch"]
    left, right, bottom = (width - side) / step - 0.5, width / step - 0.5, side / step - 0.5
    return Line(
        "", [left, right, right, left, left], [-0.5, -0.5, bottom, bottom, -0.5], INK, dashed=True
    )
