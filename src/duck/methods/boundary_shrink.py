"""Boundary Shrink (Chen et al. 2023): train towards the class across the nearest boundary."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.methods._relabelling import RelabelledBatches, fixed_labels, label_loss, other_classes
from duck.methods._training import train_copy
from duck.methods.base import METHODS, BaseMethod, Kinds
from duck.models.head import logits_of
from duck.runtime import autocast, evaluating
from duck.training.batching import Batches, NestedBatches, ShuffledPass
from duck.types import Batch, Examples, Task


@METHODS.register("boundary-shrink")
@dataclass(frozen=True)
class BoundaryShrink(BaseMethod):
    """Train each forget sample towards the class that one step of FGSM leads to."""

    paper: ClassVar[str] = "Chen 2023, arXiv:2303.11570"
    scenarios: ClassVar[Kinds] = ("class",)
    needs_retain: ClassVar[bool] = False

    lr: float = 1e-5
    batch_size: int = 64
    epochs: int = 15
    epsilon: float = 0.1
    """Length of the FGSM step, as a share of the range from black to white."""
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        batches = RelabelledBatches(self._batches(task), fixed_labels(self._targets(model, task)))
        return train_copy("boundary-shrink", self, model, task, batches, label_loss)

    def _batches(self, task: Task) -> Batches:
        """Return one pass over the forget samples."""
        return ShuffledPass("forget", task.forget, self.batch_size)

    def _targets(self, model: nn.Module, task: Task) -> Tensor:
        """Return by row the likeliest retained class of the moved image, other than its own."""
        device = task.forget.device
        allowed = other_classes(task).to(device)
        low, high = limits(task.forget)
        targets = torch.empty(len(task.forget), dtype=torch.int64, device=device)
        with evaluating(model), autocast(task.recipe.precision, device):
            for batch in task.forget.batches(self.batch_size):
                step = self.epsilon * (high - low) * _gradient(model, batch).sign()
                moved = (batch.images + step).clamp(low, high)
                logits = logits_of(model(moved)).float()
                targets[batch.rows] = logits.masked_fill(~allowed[batch.rows], -torch.inf).argmax(1)
        return targets


def _gradient(model: nn.Module, batch: Batch) -> Tensor:
    """Return the gradient of the cross-entropy with respect to the images."""
    with torch.enable_grad():
        images = batch.images.detach().requires_grad_()
        logits = logits_of(model(images)).float()
        # The sum, not the mean: the gradient of a confident sample is tiny, and dividing it by the
        # batch size could round it to zero.
        loss = cross_entropy(logits, batch.labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, images)
    return gradient


@METHODS.register("boundary-shrink-retain")
@dataclass(frozen=True)
class BoundaryShrinkRetain(BoundaryShrink):
    """Boundary Shrink with a batch of retain samples in each step.

    This is not the authors' method, which uses no retain samples.
    """

    paper: ClassVar[str] = "variant of Chen 2023, arXiv:2303.11570"
    needs_retain: ClassVar[bool] = True

    def _batches(self, task: Task) -> Batches:
        """Return each forget batch with a retain batch of the same size."""
        return NestedBatches(task.forget, task.retain, self.batch_size, 1)


def limits(examples: Examples) -> tuple[Tensor, Tensor]:
    """Return black and white of each channel as the model sees them.

    For images that are stored as floats these are the extremes of the given samples.
    """
    pixels = examples.pixels
    if pixels is not None:
        values = torch.tensor([0, 255], dtype=torch.uint8, device=examples.device)
        images = values.view(2, 1, 1, 1).repeat(1, len(pixels.mean), 1, 1)
        black, white = pixels.on(examples.device)(images)
        return black, white
    all_but_channels = (0, *range(2, len(examples.shape) + 1))
    lows, highs = [], []
    for batch in examples.batches(1000):
        lows.append(batch.images.amin(all_but_channels, True)[0])
        highs.append(batch.images.amax(all_but_channels, True)[0])
    return torch.stack(lows).amin(0), torch.stack(highs).amax(0)
