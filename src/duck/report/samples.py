"""Images of a few forgotten samples, with the predictions before and after unlearning.

They are shown only on request: evidence of forgetting must not store what was forgotten.
"""

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

SAMPLE_COUNT = 8


@dataclass(frozen=True)
class Sample:
    """An image as a data URL, its class in the data, and the predictions of the models."""

    image: str
    name: str
    true: str
    before: str | None
    """None if the original is not available."""
    after: str


def choose_forgotten_samples(
    scenario: Scenario, original: nn.Module | None, unlearned: nn.Module, count: int = SAMPLE_COUNT
) -> list[Sample]:
    """Return a few forgotten samples, chosen at random with the scenario's seed."""
    order = torch.randperm(len(scenario.forget), generator=seeded(scenario.seed, "samples"))
    examples = scenario.data.train.take(scenario.forget[order[:count]].sort().values)
    classes = scenario.data.classes
    before: Sequence[str | None] = [None] * len(examples)
    if original is not None:
        before = _predicted_classes(original, examples, classes)
    after = _predicted_classes(unlearned, examples, classes)
    true = [classes[label] for label in examples.labels.tolist()]
    images = next(examples.batches(len(examples))).images.float().cpu()
    urls = [_data_url(image) for image in images]
    rows = zip(urls, examples.ids.tolist(), true, before, after, strict=True)
    return [Sample(*row) for row in rows]


def _predicted_classes(model: nn.Module, examples: Examples, classes: Sequence[str]) -> list[str]:
    # A model can have more outputs than the data have classes.
    names = dict(enumerate(classes))
    predicted = outcomes(model, examples).predicted.tolist()
    return [names.get(index, f"output {index}") for index in predicted]


def _data_url(image: Tensor) -> str:
    """Return an image as PNG, scaled to 0..255, whatever the model's normalisation was."""
    low, high = image.min(), image.max()
    pixels = ((image - low) / (high - low).clamp_min(1e-6) * 255).round().to(torch.uint8)
    array = pixels.permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(array.squeeze(2) if array.shape[2] == 1 else array[..., :3]).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
