"""Warm restart: a short new learning-rate cycle on the retain set, from the original's weights."""

from collections.abc import Iterator
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
from duck.types import Examples, Progress, Recipe, Task

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
    """Draw the head's weights of a class that is forgotten as a whole afresh. The old ones would
    still rank its samples, although the model names the class no more."""
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
        averaged = AveragedModel(unlearned) if self.average > 1 else None
        watched = replace(task, report=self._report(task, averaged))
        fit_task(watched, unlearned, batches, self._loss(model, recipe), recipe, generator, NAME)
        if averaged is None:
            return unlearned
        unlearned.load_state_dict(averaged.module.state_dict())
        # Statistics of BatchNorm belong to single weights and cannot be averaged.
        update_bn(_images(task.retain, recipe.batch_size), unlearned)
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

    def _loss(self, model: nn.Module, recipe: Recipe) -> "_Loss":
        teacher = frozen_copy(model) if self.distillation else None
        return _Loss(teacher, self.distillation, self.temperature, recipe.label_smoothing)

    def _report(self, task: Task, averaged: AveragedModel | None) -> "_Averaging | None":
        if averaged is None:
            return task.report  # type: ignore[return-value]
        return _Averaging(averaged, self.epochs - self.average, task)


@dataclass(frozen=True, eq=False)
class _Loss:
    """Cross-entropy on labels, mixed with the divergence from a teacher if there is one."""

    teacher: nn.Module | None
    weight: float
    temperature: float
    smoothing: float

    def __call__(self, net: nn.Module, step: Step) -> Tensor:
        batch = step["retain"]
        logits = logits_of(net(batch.images))
        loss = cross_entropy(logits, batch.labels, label_smoothing=self.smoothing)
        if self.teacher is None:
            return loss
        with torch.no_grad():
            target = logits_of(self.teacher(batch.images))
        distance = divergence(target, logits, self.temperature)
        return (1 - self.weight) * loss + self.weight * distance


@dataclass(frozen=True, eq=False)
class _Averaging:
    """Progress callback that averages the weights after the last epochs."""

    averaged: AveragedModel
    first: int
    """Epochs after which the averaging begins."""
    task: Task

    def __call__(self, progress: Progress) -> None:
        if progress.is_epoch_end and progress.epoch > self.first:
            self.averaged.update_parameters(progress.model)
        if self.task.report:
            self.task.report(progress)


@torch.no_grad()
def _mix(model: nn.Module, fresh: nn.Module, share: float) -> None:
    """Move all weights towards those of a fresh model (shrink and perturb, Ash and Adams 2020)."""
    shapes = [[tuple(weight.shape) for weight in net.parameters()] for net in (model, fresh)]
    if shapes[0] != shapes[1]:
        raise BadInput("new_model= builds a model of another architecture than the original.")
    for weight, other in zip(model.parameters(), fresh.parameters(), strict=True):
        if weight.requires_grad:
            weight.lerp_(other.to(weight.dtype), share)


def _images(examples: Examples, size: int) -> Iterator[Tensor]:
    for batch in examples.batches(size):
        yield batch.images
