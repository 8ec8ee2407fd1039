"""SHAP values of images: how much each pixel raises or lowers the probability of a class, against a background of other images.

Gradients are integrated along the straight line from each background image to the image (Integrated Gradients) and averaged over the
background: the Aumann-Shapley form of SHAP. It needs nothing of a model but gradients, and unlike sampled estimates it can be checked:
the values of an image must sum to its probability less the background's.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from duck.errors import BadInput, MissingExtra
from duck.models.head import logits_of
from duck.predict import MAX_BATCH_VALUES
from duck.runtime import device_of, evaluating, seeded
from duck.types import Examples

BACKGROUND = 10
"""Images that the values are measured against."""
STEPS = 32
"""Points on each line at first; doubled for images whose values do not add up."""
MOST_STEPS = 512
TOLERANCE = 0.01
"""How far, in probability, the values of an image may be from adding up."""
AT_ONCE = 500
"""Images in one forward and backward pass, if they are small."""

Explainer = Callable[[Tensor, Tensor, Tensor, int], Tensor]


class Incomplete(UserWarning):
    """Values that do not add up to what they are to explain."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """SHAP values of some images, on the host."""

    values: Tensor
    """(N, C, H, W): positive raises the probability of the image's class in question, negative lowers it."""
    outputs: Tensor
    """Probability of that class for each image."""
    base: Tensor
    """The same for the background, on average."""
    tolerance: float

    @property
    def gaps(self) -> Tensor:
        """How far the values of each image are from adding up."""
        return (self.values.double().flatten(1).sum(1) - (self.outputs - self.base)).abs()

    @property
    def complete(self) -> Tensor:
        """Which images' values add up within the tolerance."""
        return self.gaps <= self.tolerance

    @property
    def maps(self) -> Tensor:
        """(N, H, W): the channels of a pixel together."""
        return self.values.sum(1)


def shap_values(
    model: nn.Module,
    images: Tensor,
    targets: Tensor | int,
    background: Tensor,
    *,
    steps: int = STEPS,
    most_steps: int = MOST_STEPS,
    tolerance: float = TOLERANCE,
) -> Attribution:
    """Values of each pixel for the probability of the target class of its image; a warning names how many do not add up.

    Images and background are as the model takes them (normalised).
    """
    if not len(images) or not len(background):
        raise BadInput("SHAP values need at least one image and one background image.")
    if not 2 <= steps <= most_steps:
        raise BadInput(f"steps must lie between 2 and most_steps, got {steps} and {most_steps}.")
    explain, device = _integrated(model), device_of(model)
    images, background = images.to(device), background.to(device)
    classes = torch.as_tensor(targets, device=device).expand(len(images))
    with evaluating(model):
        outputs = _probabilities(model, images)[torch.arange(len(images)), classes]
        base = _probabilities(model, background).mean(0)[classes]
        values, todo = torch.zeros_like(images), torch.arange(len(images), device=device)
        while len(todo) and steps <= most_steps:
            values[todo] = _mean_over(explain, images[todo], background, classes[todo], steps)
            found = Attribution(values, outputs, base, tolerance)
            todo, steps = (~found.complete).nonzero().flatten(), 2 * steps
    if len(todo):
        worst = float(found.gaps.max())
        message = f"SHAP values of {len(todo)} of {len(images)} images do not add up: off by up to {worst:.3f}, allowed {tolerance}."
        warnings.warn(f"{message} Raise most_steps (now {most_steps}).", Incomplete, stacklevel=2)
    return Attribution(values.cpu(), outputs.cpu(), base.cpu(), tolerance)


def background_of(examples: Examples, seed: int = 0, count: int = BACKGROUND) -> Tensor:
    """So many of the examples, drawn with the seed, as a model takes them."""
    rows = torch.randperm(len(examples), generator=seeded(seed, "background"))[:count]
    return images_of(examples.take(rows))


def images_of(examples: Examples) -> Tensor:
    """All of them, as a model takes them."""
    return torch.cat([batch.images for batch in examples.batches(AT_ONCE)])


def at_once(images: Tensor) -> int:
    """How many of them go into one pass: big images fill a device with fewer."""
    return min(AT_ONCE, max(1, MAX_BATCH_VALUES // images[0].numel()))


def _mean_over(
    explain: Explainer, images: Tensor, background: Tensor, classes: Tensor, steps: int
) -> Tensor:
    size = at_once(images)
    parts = zip(images.split(size), classes.split(size), strict=True)
    sums = [
        sum((explain(x, b.expand_as(x), y, steps) for b in background), torch.zeros_like(x))
        for x, y in parts
    ]
    return torch.cat(sums) / len(background)


def require_captum() -> Any:
    """Its Integrated Gradients; where it is not installed an error, which whoever is to train for an hour first should hear before."""
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise MissingExtra(
            "Attributions need captum: pip install 'duck-unlearning[explain]'"
        ) from error
    return IntegratedGradients


def _integrated(model: nn.Module) -> Explainer:
    gradients = require_captum()(lambda images: logits_of(model(images)).float().softmax(1))

    def explain(images: Tensor, baselines: Tensor, classes: Tensor, steps: int) -> Tensor:
        # Probabilities bend sharply where one class takes over from another: evenly spread points find that place soonest.
        values: Tensor = gradients.attribute(
            images,
            baselines,
            classes,
            n_steps=steps,
            method="riemann_middle",
            internal_batch_size=at_once(images),
        )
        return values.detach()

    return explain


def _probabilities(model: nn.Module, images: Tensor) -> Tensor:
    return torch.cat(
        [logits_of(model(part)).double().softmax(1) for part in images.split(at_once(images))]
    )
