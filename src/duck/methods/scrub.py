"""SCRUB: scalable remembering and unlearning unbound (Kurmanji et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.errors import BadInput
from duck.methods._distillation import divergence, frozen_copy
from duck.methods._relabelling import training_logits
from duck.methods._stopping import snapshot
from duck.methods._training import fit_task, method_recipe
from duck.methods.base import METHODS, BaseMethod, clone
from duck.models.head import logits_of
from duck.predict import accuracy
from duck.runtime import seeded
from duck.training.batching import Batches, ConsecutivePasses, ShuffledPass, Step
from duck.types import Augment, Examples, Recipe, Task


@METHODS.register("scrub")
@dataclass(frozen=True)
class Scrub(BaseMethod):
    """Diverge from the original on forget samples and follow it on the others (eq. 3)."""

    paper: ClassVar[str] = "Kurmanji 2023, arXiv:2302.09880"

    lr: float = 5e-4
    epochs: int = 3
    forget_epochs: int = 2
    """Number of first epochs that start with a pass over the forget samples."""
    alpha: float = 0.001
    """Weight of the divergence on retain samples."""
    gamma: float = 0.99
    """Weight of the cross-entropy on retain samples."""
    temperature: float = 4.0
    """Temperature of both softmaxes in the divergence."""
    batch_size: int = 256
    """Size of a batch of retain samples."""
    forget_batch: int = 256
    """Size of a batch of forget samples; the authors mostly use 16 to 64."""
    momentum: float = 0.9
    weight_decay: float = 5e-4
    milestones: tuple[int, ...] = ()
    """Epochs after which the learning rate is multiplied by `decay`."""
    decay: float = 0.1
    augment: Augment = "none"
    rewind: bool = False
    """SCRUB+R: return the weights of the epoch whose forget accuracy is closest to the final
    accuracy on holdout samples of the same classes."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        if not 1 <= self.forget_epochs <= self.epochs:
            raise BadInput(
                f"forget_epochs must be from 1 to epochs ({self.epochs}), got {self.forget_epochs}."
            )
        unlearned = clone(model)
        history = _History(unlearned, task) if self.rewind else None
        self._train(unlearned, frozen_copy(model), task, history)
        if history:
            history.rewind()
        return unlearned

    def _train(
        self, unlearned: nn.Module, teacher: nn.Module, task: Task, history: "_History | None"
    ) -> None:
        generator = seeded(task.seed, "scrub")
        after_epoch = history.record if history else None
        forget = ShuffledPass("forget", task.forget, self.forget_batch, self.augment)
        retain = ShuffledPass("retain", task.retain, self.batch_size, self.augment)

        def loss(net: nn.Module, step: Step) -> Tensor:
            return self.loss(net, teacher, step)

        def fit_phase(batches: Batches, start: int, phase: str) -> None:
            recipe = self._recipe(task, start)
            fit_task(task, unlearned, batches, loss, recipe, generator, phase, stop=after_epoch)

        fit_phase(ConsecutivePasses(forget, retain), 0, "max-min")
        # Epochs without the forget pass are shorter, but a schedule needs epochs of one length.
        # So they are a second training, which continues the schedule. Only the momentum restarts.
        if self.epochs > self.forget_epochs:
            fit_phase(retain, self.forget_epochs, "min")

    def _recipe(self, task: Task, start: int) -> Recipe:
        """Return the recipe of the training that starts after `start` epochs."""
        epochs = self.epochs - self.forget_epochs if start else self.forget_epochs
        milestones = tuple(milestone - start for milestone in self.milestones)
        return method_recipe(task, self, epochs=epochs, milestones=milestones, gamma=self.decay)

    def loss(self, net: nn.Module, teacher: nn.Module, step: Step) -> Tensor:
        """Return minus the divergence on a forget batch; both terms on a retain batch."""
        ((name, batch),) = step.items()
        logits = training_logits(net, batch.images)
        with torch.no_grad():
            teacher_logits = logits_of(teacher(batch.images)).float()
        distance = divergence(teacher_logits, logits, self.temperature)
        if name == "forget":
            return -distance
        return self.alpha * distance + self.gamma * cross_entropy(logits, batch.labels)


class _History:
    """The weights of a model after each epoch, for SCRUB+R."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        self.model = model
        self.task = task
        self.unseen = _unseen_of_forget_classes(task)
        self.epochs: list[tuple[float, dict[str, Tensor]]] = []

    def record(self) -> bool:
        """Store the forget accuracy and the weights of an epoch; return False to continue."""
        self.epochs.append((self._accuracy(self.task.forget), snapshot(self.model)))
        return False

    def rewind(self) -> None:
        """Load the weights of the best epoch; of equally good epochs, the last."""
        reference = self._accuracy(self.unseen)
        _, weights = min(reversed(self.epochs), key=lambda epoch: abs(epoch[0] - reference))
        self.model.load_state_dict(weights)

    def _accuracy(self, examples: Examples) -> float:
        return accuracy(self.model, examples, self.task.recipe.precision)


def _unseen_of_forget_classes(task: Task) -> Examples:
    if task.holdout is not None:
        rows = torch.isin(task.holdout.labels, task.forget.labels).nonzero().flatten()
        if len(rows):
            return task.holdout.take(rows)
    raise BadInput("rewind needs holdout samples of the forgotten classes: give test data.")
