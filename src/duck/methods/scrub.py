"""SCRUB: scalable remembering and unlearning unbound (Kurmanji et al. 2023)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.batching import Batches, Passes, Step
from duck.errors import BadInput
from duck.fit import fit
from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.methods.distillation import divergence, frozen
from duck.methods.relabelling import freeze_norms
from duck.models.embedding import logits_of
from duck.runtime import seeded
from duck.types import Augment, Task


@METHODS.register("scrub")
@dataclass(frozen=True)
class Scrub:
    """Disobey the original on the forget samples and obey it on the others, in turn (SCRUB, eq. 3)."""

    paper: ClassVar[str] = "Kurmanji 2023, arXiv:2302.09880"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = True
    forgets_by: ClassVar[Forgets] = "training"

    lr: float = 5e-4
    epochs: int = 3
    forget_epochs: int = 2
    """The first so many epochs begin with a pass over the forget samples that maximises the divergence."""
    alpha: float = 0.001
    """Weight of the divergence on retain samples."""
    gamma: float = 0.99
    """Weight of the cross-entropy on retain samples."""
    temperature: float = 4.0
    """Of both softmaxes in the divergence."""
    batch_size: int = 256
    forget_batch: int = 512
    momentum: float = 0.9
    weight_decay: float = 5e-4
    milestones: tuple[int, ...] = ()
    """Epochs after which the rate is multiplied by `decay`."""
    decay: float = 0.1
    augment: Augment = "none"

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        if not 1 <= self.forget_epochs <= self.epochs:
            raise BadInput(f"forget_epochs must be from 1 to epochs ({self.epochs}), got {self.forget_epochs}.")
        unlearned, teacher, generator = clone(model), frozen(model), seeded(task.seed, "scrub")
        recipe = replace(
            task.recipe, optimizer="sgd", lr=self.lr, momentum=self.momentum, nesterov=False, weight_decay=self.weight_decay,
            schedule="step", milestones=self.milestones, gamma=self.decay,
            epochs=self.forget_epochs, batch_size=self.batch_size, augment=self.augment,
        )  # fmt: skip

        def loss(net: nn.Module, step: Step) -> Tensor:
            return self.loss(net, teacher, step)

        keep = Passes("retain", task.retain, self.batch_size, self.augment)
        push = Passes("forget", task.forget, self.forget_batch, self.augment)
        fit(unlearned, InTurn(push, keep), loss, recipe, generator, phase="max-min", report=task.report, steady=True)
        # Epochs without the forget pass are shorter, and a schedule needs epochs of one length: a second training with the rate going
        # on where it was. Only the momentum begins anew.
        rest = self.epochs - self.forget_epochs
        if rest:
            later = replace(recipe, epochs=rest, milestones=tuple(m - self.forget_epochs for m in self.milestones))
            fit(unlearned, keep, loss, later, generator, phase="min", report=task.report, steady=True)
        return unlearned

    def loss(self, net: nn.Module, teacher: nn.Module, step: Step) -> Tensor:
        """Minus the divergence on a forget batch; both terms on a retain batch."""
        ((name, batch),) = step.items()
        # A single sample has no spread to normalise by.
        if len(batch.labels) == 1:
            freeze_norms(net)
        logits = logits_of(net(batch.images)).float()
        net.train()
        with torch.no_grad():
            wanted = logits_of(teacher(batch.images)).float()
        apart = divergence(wanted, logits, self.temperature)
        return -apart if name == "forget" else self.alpha * apart + self.gamma * cross_entropy(logits, batch.labels)


@dataclass(frozen=True)
class InTurn:
    """In each epoch all steps of the first, then all steps of the second."""

    first: Batches
    second: Batches

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        yield from self.first.epoch(generator)
        yield from self.second.epoch(generator)
