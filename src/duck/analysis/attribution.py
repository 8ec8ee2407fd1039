"""SHAP values: how much each pixel raises or lowers the probability of a class.

Gradients are integrated along the straight line from each background image to the image
(Integrated Gradients) and averaged over the background: the Aumann-Shapley form of SHAP. It needs
only gradients of the model. Unlike sampled estimates it can be checked: the values of an image
must sum to its probability minus that of the background.
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

BACKGROUND_IMAGES = 10
"""Images that an image is compared with."""
STEPS = 32
"""Points on each line at first. They are doubled for images whose values do not add up."""
MAX_STEPS = 512
TOLERANCE = 0.01
"""The largest gap, in probability, between the sum of the values and what they explain."""
IMAGES_PER_PASS = 500
"""Small images in one forward and backward pass."""

Explainer = Callable[[Tensor, Tensor, Tensor, int], Tensor]


class IncompleteAttribution(UserWarning):
    """SHAP values that do not add up to the difference they explain."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """SHAP values of images, on the CPU."""

    values: Tensor
    """(N, C, H, W): a positive value raises the probability of the image's target class."""
    outputs: Tensor
    """Probability of the target class of each image."""
    base: Tensor
    """Mean probability of the same class over the background."""
    tolerance: float

    @property
    def gaps(self) -> Tensor:
        """The gap between the sum of the values and what they explain, for each image."""
        return (self.values.double().flatten(1).sum(1) - (self.outputs - self.base)).abs()

    @property
    def complete(self) -> Tensor:
        """Whether the values of each image add up within the tolerance."""
        return self.gaps <= self.tolerance

    @property
    def maps(self) -> Tensor:
        """(N, H, W): the sum over the channels of each pixel."""
        return self.values.sum(1)


def shap_values(
    model: nn.Module,
    images: Tensor,
    targets: Tensor | int,
    background: Tensor,
    *,
    steps: int = STEPS,
    max_steps: int = MAX_STEPS,
    tolerance: float = TOLERANCE,
) -> Attribution:
    """Compute the SHAP value of each pixel for the target class of its image.

    Images and background are normalised, as the model takes them. A warning tells how many images
    have values that do not add up.
    """
    if not len(images) or not len(background):
        raise BadInput("SHAP values need at least one image and one background image.")
    if not 2 <= steps <= max_steps:
        raise BadInput(f"steps must lie between 2 and max_steps, got {steps} and {max_steps}.")
    explain = _make_explainer(model)
    device = device_of(model)
    images = images.to(device)
    background = background.to(device)
    classes = torch.as_tensor(targets, device=device).expand(len(images))
    with evaluating(model):
        outputs = _probabilities(model, images)[torch.arange(len(images)), classes]
        base = _probabilities(model, background).mean(0)[classes]
        attribution = Attribution(torch.zeros_like(images), outputs, base, tolerance)
        pending = torch.arange(len(images), device=device)
        while len(pending) and steps <= max_steps:
            attribution.values[pending] = _mean_over_background(
                explain, images[pending], background, classes[pending], steps
            )
            pending = (~attribution.complete).nonzero().flatten()
            steps *= 2
    if len(pending):
        warnings.warn(
            f"SHAP values of {len(pending)} of {len(images)} images do not add up: off by up to "
            f"{float(attribution.gaps.max()):.3f}, allowed {tolerance}. "
            f"Raise max_steps (now {max_steps}).",
            IncompleteAttribution,
            stacklevel=2,
        )
    return Attribution(attribution.values.cpu(), outputs.cpu(), base.cpu(), tolerance)


def background_of(examples: Examples, seed: int = 0, count: int = BACKGROUND_IMAGES) -> Tensor:
    """Choose background images at random with the seed, as a model takes them."""
    rows = torch.randperm(len(examples), generator=seeded(seed, "background"))[:count]
    return images_of(examples.take(rows))


def images_of(examples: Examples) -> Tensor:
    """Return all images as a model takes them."""
    return torch.cat([batch.images for batch in examples.batches(IMAGES_PER_PASS)])


def images_per_pass(images: Tensor) -> int:
    """Return how many images fit in one pass. Large images need more memory."""
    return min(IMAGES_PER_PASS, max(1, MAX_BATCH_VALUES // images[0].numel()))


def _mean_over_background(
    explain: Explainer, images: Tensor, background: Tensor, classes: Tensor, steps: int
) -> Tensor:
    size = images_per_pass(images)
    sums = []
    for part, targets in zip(images.split(size), classes.split(size), strict=True):
        total = torch.zeros_like(part)
        for image in background:
            total = total + explain(part, image.expand_as(part), targets, steps)
        sums.append(total)
    return torch.cat(sums) / len(background)


def require_captum() -> Any:
    """Return captum's Integrated Gradients, or raise MissingExtra.

    A command that trains first calls this before the training.
    """
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise MissingExtra(
            "Attributions need captum: pip install 'duck-unlearning[explain]'"
        ) from error
    return IntegratedGradients


def _make_explainer(model: nn.Module) -> Explainer:
    gradients = require_captum()(lambda images: logits_of(model(images)).float().softmax(1))

    def explain(images: Tensor, baselines: Tensor, classes: Tensor, steps: int) -> Tensor:
        # Probabilities change sharply where one class replaces another. Evenly spaced points
        # find that place soonest.
        values: Tensor = gradients.attribute(
            images,
            baselines,
            classes,
            n_steps=steps,
            method="riemann_middle",
            internal_batch_size=images_per_pass(images),
        )
        return values.detach()

    return explain


def _probabilities(model: nn.Module, images: Tensor) -> Tensor:
    return torch.cat(
        [
            logits_of(model(part)).double().softmax(1)
            for part in images.split(images_per_pass(images))
        ]
    )
