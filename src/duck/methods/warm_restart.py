"""Warm restart: a short new learning-rate cycle on the retain set, from the original's weights."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, update_bn

from duck.errors import BadInput
from duck.methods._distillation import divergence, frozen_copy
from duck.methods._head_rows import redraw_forgotten
from duck.methods._training import fit_task, new_model
from duck.methods.base import METHODS, BaseMethod, ForgetsBy, clone
from duck.models.head import logits_of
from duck.runtime import seeded
from duck.training.batching import ShuffledPass, Step
from duck.training.loop import Loss
from duck.types import Progress, Recipe, Task

NAME = "warm-restart"


@METHODS.register(NAME)
@dataclass(frozen=True)
class WarmRestart(BaseMethod):
    """Train on the retain samples as the original was trained, for a tenth of its epochs.

    The learning rate rises to the peak of the original's training, which moves the weights far
    enough to lose single samples, and falls to 0, which restores the accuracy. Forget samples are
    never used.
    """

    paper: ClassVar[str] = "ours; learning-rate cycles: Smith 2018, arXiv:1708.07120"
    forgets_by: ClassVar[ForgetsBy] = "omission"

    peak: float = 1.0
    """Peak of the learning rate, as a multiple of the original's."""
    epochs: int = 4
    batch_size: int = 0
    """Samples of a step. 0: as in the original's training. A short cycle with large batches has few
    steps to recover in."""
    warmup: float = 0.25
    """Share of the steps in which the learning rate rises."""
    shrink: float = 0.0
    """Share of fresh weights that the original's are mixed with at the start."""
    fresh_rows: bool = True
    """Reinitialise the head's weights of a class that is forgotten as a whole. The old weights
    would still rank its samples, although the model no longer predicts the class."""
    distillation: float = 0.0
    """Weight of the divergence from the original's outputs on retain samples, in [0, 1]. The
    weight of the labels is the rest."""
    temperature: float = 2.0
    """Temperature of the distillation."""
    average: int = 0
    """Average the weights after this many of the last epochs; 0 and 1: the last weights."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        for name in ("shrink", "distillation"):
            if getattr(self, name) > 1:
                raise BadInput(f"{name} must be in [0, 1], got {getattr(self, name)}.")
        if self.temperature == 0:
            raise BadInput("temperature must be above 0.")
        generator = seeded(task.seed, NAME)
        unlearned = clone(model)
        if self.shrink:
            _mix(unlearned, new_model(NAME, model, task, generator), self.shrink)
        if self.fresh_rows:
            redraw_forgotten(unlearned, task, seeded(task.seed, NAME, "head"))
        recipe = self.recipe(task)
        batches = ShuffledPass("retain", task.retain, recipe.batch_size, recipe.augment)
        loss = self._loss(model, recipe.label_smoothing)
        if self.average <= 1:
            fit_task(task, unlearned, batches, loss, recipe, generator, NAME)
            return unlearned
        averaged = AveragedModel(unlearned)

        def report(progress: Progress) -> None:
            if progress.is_epoch_end and progress.epoch > self.epochs - self.average:
                averaged.update_parameters(progress.model)
            if task.report:
                task.report(progress)

        watched = replace(task, report=report)
        fit_task(watched, unlearned, batches, loss, recipe, generator, NAME)
        unlearned.load_state_dict(averaged.module.state_dict())
        # Statistics of BatchNorm belong to single weights and cannot be averaged.
        update_bn((batch.images for batch in task.retain.batches(recipe.batch_size)), unlearned)
        return unlearned.train(model.training)

    def recipe(self, task: Task) -> Recipe:
        """Return the original's recipe with a short cycle."""
        return replace(
            task.recipe,
            epochs=self.epochs,
            batch_size=self.batch_size or task.recipe.batch_size,
            lr=self.peak * task.recipe.lr,
            schedule="one-cycle",
            warmup=self.warmup,
        )

    def _loss(self, model: nn.Module, smoothing: float) -> Loss:
        """Return the cross-entropy on labels, mixed with the divergence from the original."""
        teacher = frozen_copy(model) if self.distillation else None

        def loss(net: nn.Module, step: Step) -> Tensor:
            batch = step["retain"]
            logits = logits_of(net(batch.images))
            on_labels = cross_entropy(logits, batch.labels, label_smoothing=smoothing)
            if teacher is None:
                return on_labels
            with torch.no_grad():
                target = logits_of(teacher(batch.images))
            distance = divergence(target, logits, self.temperature)
            return (1 - self.distillation) * on_labels + self.distillation * distance

        return loss


@torch.no_grad()
def _mix(model: nn.Module, fresh: nn.Module, share: float) -> None:
    """Move all weights towards those of a fresh model (shrink and perturb, Ash and Adams 2020)."""
    shapes = [[tuple(weight.shape) for weight in net.parameters()] for net in (model, fresh)]
    if shapes[0] != shapes[1]:
        raise BadInput("new_model= builds a model of another architecture than the original.")
    for weight, other in zip(model.parameters(), fresh.parameters(), strict=True):
        if weight.requires_grad:
            weight.lerp_(other.to(weight.dtype), share)
