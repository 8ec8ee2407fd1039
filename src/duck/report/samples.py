"""A few forgotten samples with what the model took them for, before and after. Only where it was asked for: evidence of forgetting
must not keep what was to be forgotten."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor, nn

from duck.predict import outcomes
from duck.runtime import seeded
from duck.types import Examples, Scenario

COUNT = 8
SIDE = 96
"""Least pixels a side on the page: small images are enlarged."""


@dataclass(frozen=True)
class Sample:
    """An image as a data address, and its class in the data and by the models."""

    image: str
    name: str
    true: str
    before: str | None
    """None where the original is not at hand."""
    after: str


def forgotten_samples(
    scenario: Scenario, original: nn.Module | None, unlearned: nn.Module, count: int = COUNT
) -> list[Sample]:
    """Drawn with the scenario's seed."""
    order = torch.randperm(len(scenario.forget), generator=seeded(scenario.seed, "samples"))
    some = scenario.data.train.take(scenario.forget[order[:count]].sort().values)
    classes = scenario.data.classes
    true = [classes[label] for label in some.labels.tolist()]
    before: Sequence[str | None] = (
        [None] * len(some) if original is None else _named(original, some, classes)
    )
    parts = zip(
        _pictures(some),
        some.ids.tolist(),
        true,
        before,
        _named(unlearned, some, classes),
        strict=True,
    )
    return [Sample(*part) for part in parts]


def _named(model: nn.Module, some: Examples, classes: Sequence[str]) -> list[str]:
    named = dict(enumerate(classes))  # a model may have more outputs than the data have classes
    return [
        named.get(index, f"output {index}") for index in outcomes(model, some).predicted.tolist()
    ]


def _pictures(some: Examples) -> list[str]:
    return [
        _address(image) for image in stretched(next(some.batches(len(some))).images.float().cpu())
    ]


def stretched(images: Tensor) -> Tensor:
    """(N, C, H, W), each image to 0..255, whatever the model's normalisation."""
    low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
    return ((images - low) / (high - low).clamp_min(1e-6) * 255).round().to(torch.uint8)


def _address(image: Tensor) -> str:
    array = image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(array.squeeze(2) if array.shape[2] == 1 else array[..., :3])
    times = -(-SIDE // max(picture.size))
    file = io.BytesIO()
    picture.resize((times * picture.width, times * picture.height), Image.Resampling.NEAREST).save(
        file, "PNG"
    )
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
