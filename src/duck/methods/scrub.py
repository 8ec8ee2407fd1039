"""SCRUB: scalable remembering and unlearning unbound (Kurmanji et al. 2023)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.errors import BadInput
from duck.methods._distillation import divergence, frozen
from duck.methods._relabelling import training_logits
from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.models.head import logits_of
from duck.predict import accuracy
from duck.runtime import seeded
from duck.training.batching import InTurn, Passes, Step
from duck.training.loop import fit
from duck.types import Augment, Examples, Task


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
    """Of retain samples."""
    forget_batch: int = 256
    """Size of a batch of forget samples; the authors mostly use 16 to 64."""
    momentum: float = 0.9
    weight_decay: float = 5e-4
    milestones: tuple[int, ...] = ()
    """Epochs after which the rate is multiplied by `decay`."""
    decay: float = 0.1
    augment: Augment = "none"
    rewind: bool = False
    """SCRUB+R: return the weights after the epoch whose forget accuracy is closest to the accuracy on unseen samples of the same
    classes (holdout), measured at the end."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        if not 1 <= self.forget_epochs <= self.epochs:
            raise BadInput(
                f"forget_epochs must be from 1 to epochs ({self.epochs}), got {self.forget_epochs}."
            )
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
        history = _History(unlearned, task) if self.rewind else None
        after_epoch = history.record if history else None
        fit(
            unlearned,
            InTurn(push, keep),
            loss,
            recipe,
            generator,
            phase="max-min",
            stop=after_epoch,
            report=task.report,
            steady=True,
        )
        # Epochs without the forget pass are shorter, and a schedule needs epochs of one length: a second training with the rate going
        # on where it was. Only the momentum begins anew.
        rest = self.epochs - self.forget_epochs
        if rest:
            later = replace(
                recipe,
                epochs=rest,
                milestones=tuple(m - self.forget_epochs for m in self.milestones),
            )
            fit(
                unlearned,
                keep,
                loss,
                later,
                generator,
                phase="min",
                stop=after_epoch,
                report=task.report,
                steady=True,
            )
        if history:
            history.rewind()
        return unlearned

    def loss(self, net: nn.Module, teacher: nn.Module, step: Step) -> Tensor:
        """Minus the divergence on a forget batch; both terms on a retain batch."""
        ((name, batch),) = step.items()
        logits = training_logits(net, batch.images)
        with torch.no_grad():
            wanted = logits_of(teacher(batch.images)).float()
        apart = divergence(wanted, logits, self.temperature)
        return (
            -apart
            if name == "forget"
            else self.alpha * apart + self.gamma * cross_entropy(logits, batch.labels)
        )


class _History:
    """The weights of a model after each epoch, for SCRUB+R."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        holdout = task.holdout
        rows = (
            torch.empty(0)
            if holdout is None
            else torch.isin(holdout.labels, task.forget.labels).nonzero().flatten()
        )
        if holdout is None or not len(rows):
            raise BadInput(
                "rewind needs holdout samples of the forgotten classes: give data with a test split, or leave rewind off."
            )
        self.model, self.task, self.unseen = model, task, holdout.take(rows)
        self.epochs: list[tuple[float, dict[str, Tensor]]] = []

    def record(self) -> bool:
        """Keep the weights and the forget accuracy of an epoch. Returns False: the training continues."""
        weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.epochs.append((self._accuracy(self.task.forget), weights))
        return False

    def rewind(self) -> None:
        """Load the weights of the epoch whose forget accuracy is closest to the final accuracy on unseen samples; the latest of equals."""
        reference = self._accuracy(self.unseen)
        _, weights = min(reversed(self.epochs), key=lambda epoch: abs(epoch[0] - reference))
        self.model.load_state_dict(weights)

    def _accuracy(self, examples: Examples) -> float:
        return accuracy(self.model, examples, self.task.recipe.precision)
