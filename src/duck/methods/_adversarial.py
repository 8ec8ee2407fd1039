"""Adversarial examples: images close to others that a model classifies otherwise."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from duck.models.head import logits_of
from duck.types import Batch

STEP_SHARE = 0.1
"""Length of a step, as a share of the radius."""
MAX_DOUBLINGS = 12
"""Doublings of the radius, at most."""
TINY = 1e-12
"""Instead of a length of 0, so that nothing is divided by 0."""


@dataclass(frozen=True, eq=False)
class Attack:
    """Projected gradient descent in an L2 ball that grows until the prediction changes."""

    model: nn.Module
    """In eval mode."""
    black: Tensor
    white: Tensor
    """Limits of the images, by channel."""
    radius: float
    """First radius, where black is 0 and white is 1. It is doubled after `steps` steps."""
    steps: int

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the moved images and their predictions.

        Where the prediction is still the label, no image was found.
        """
        # Where black is white, nothing can move.
        extent = (self.white - self.black).clamp(min=TINY)
        moved, predicted = batch.images.clone(), batch.labels.clone()
        rows = torch.arange(len(moved), device=moved.device)
        for step in range(self.steps * (MAX_DOUBLINGS + 1) + 1):
            predicted[rows], gradient = _margin_gradient(
                self.model, moved[rows], batch.labels[rows]
            )
            unchanged = predicted[rows] == batch.labels[rows]
            rows, gradient = rows[unchanged], gradient[unchanged]
            if not len(rows):
                break
            radius = self.radius * 2 ** (step // self.steps)
            change = (moved[rows] - batch.images[rows]) / extent
            change += STEP_SHARE * radius * gradient * extent / _lengths(gradient * extent)
            change *= (radius / _lengths(change)).clamp(max=1)
            moved[rows] = (batch.images[rows] + change * extent).clamp(self.black, self.white)
        return moved, predicted


def _margin_gradient(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return predictions, and the gradient of the best other logit minus the own one.

    Unlike the gradient of the cross-entropy it does not vanish where the model is confident.
    """
    with torch.enable_grad():
        inputs = images.detach().requires_grad_()
        logits = logits_of(model(inputs)).float()
        own = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
        others = logits.scatter(1, labels.unsqueeze(1), -torch.inf).amax(1)
        (gradient,) = torch.autograd.grad((others - own).sum(), inputs)
    return logits.argmax(1), gradient


def _lengths(changes: Tensor) -> Tensor:
    """Return the L2 norm of each image in a shape that divides the images."""
    norms: Tensor = torch.linalg.vector_norm(changes.flatten(1), dim=1).clamp(min=TINY)
    return norms.view(-1, *[1] * (changes.dim() - 1))
