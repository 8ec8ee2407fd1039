"""Boundary Shrink (Chen et al. 2023): give each forget sample the label of the nearest wrong class across the boundary."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.data.examples import Pixels
from duck.methods._relabelling import Relabelled, fixed_labels, label_loss, other_classes
from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.models.head import logits_of
from duck.runtime import autocast, evaluating, seeded
from duck.training.batching import Batches, Nested, Passes
from duck.training.loop import fit
from duck.types import Examples, Task


@METHODS.register("boundary-shrink")
@dataclass(frozen=True)
class BoundaryShrink:
    """Train the forget samples towards the class that one step against their own label leads to (FGSM)."""

    paper: ClassVar[str] = "Chen 2023, arXiv:2303.11570"
    scenarios: ClassVar[Kinds] = ("class",)
    needs_retain: ClassVar[bool] = False
    forgets_by: ClassVar[Forgets] = "training"

    lr: float = 1e-5
    batch_size: int = 64
    epochs: int = 15
    epsilon: float = 0.1
    """Length of the step, as a share of the range from black to white."""
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned, generator = clone(model), seeded(task.seed, "boundary-shrink")
        labels = fixed_labels(self._targets(unlearned, task))
        recipe = replace(
            task.recipe, optimizer="sgd", lr=self.lr, momentum=self.momentum, nesterov=False, weight_decay=self.weight_decay,
            schedule="constant", epochs=self.epochs, batch_size=self.batch_size,
        )  # fmt: skip
        batches = Relabelled(self._batches(task), labels)
        fit(
            unlearned,
            batches,
            label_loss,
            recipe,
            generator,
            phase="boundary-shrink",
            report=task.report,
            steady=True,
        )
        return unlearned

    def _batches(self, task: Task) -> Batches:
        """Return the batches of an epoch: the forget samples alone."""
        return Passes("forget", task.forget, self.batch_size)

    def _targets(self, model: nn.Module, task: Task) -> Tensor:
        """By row, the likeliest class of the moved image, its own and those that go left out."""
        device = task.forget.device
        allowed, (low, high) = other_classes(task).to(device), limits(task.forget)
        targets = torch.empty(len(task.forget), dtype=torch.int64, device=device)
        with evaluating(model), autocast(task.recipe.precision, device):
            for batch in task.forget.batches(self.batch_size):
                with torch.enable_grad():
                    images = batch.images.detach().requires_grad_()
                    # A sum: the gradient of a sure sample is tiny, and dividing it by the batch would make zeros of some.
                    loss = cross_entropy(
                        logits_of(model(images)).float(), batch.labels, reduction="sum"
                    )
                    (slope,) = torch.autograd.grad(loss, images)
                moved = (batch.images + self.epsilon * (high - low) * slope.sign()).clamp(low, high)
                logits = logits_of(model(moved)).float()
                targets[batch.rows] = logits.masked_fill(~allowed[batch.rows], -torch.inf).argmax(1)
        return targets


@METHODS.register("boundary-shrink-retain")
@dataclass(frozen=True)
class BoundaryShrinkRetain(BoundaryShrink):
    """Boundary Shrink with a batch of retain samples in each step: not the authors' method, which uses no retain samples."""

    paper: ClassVar[str] = "variant of Chen 2023, arXiv:2303.11570"
    needs_retain: ClassVar[bool] = True

    def _batches(self, task: Task) -> Batches:
        """Return the batches of an epoch: each forget batch with a retain batch of the same size."""
        return Nested(task.forget, task.retain, self.batch_size, 1)


def limits(examples: Examples) -> tuple[Tensor, Tensor]:
    """Black and white of each channel as the model sees them; of images that come as floats, the extremes of these samples."""
    pixels = getattr(
        getattr(examples, "examples", examples), "pixels", None
    )  # Examples that count what is drawn wrap others.
    if isinstance(pixels, Pixels):
        ends = (
            torch.tensor([0, 255], dtype=torch.uint8, device=examples.device)
            .view(2, 1, 1, 1)
            .repeat(1, len(pixels.mean), 1, 1)
        )
        black, white = pixels.on(examples.device)(ends)
        return black, white
    rest = tuple(range(2, len(examples.shape) + 1))
    lows, highs = zip(
        *[
            (i.amin((0, *rest), True)[0], i.amax((0, *rest), True)[0])
            for i, *_ in examples.batches(1000)
        ],
        strict=True,
    )
    return torch.stack(lows).amin(0), torch.stack(highs).amax(0)
