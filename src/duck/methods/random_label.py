"""Random Label: train the forget samples towards wrong labels (Hayase et al. 2020)."""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from duck.batching import Passes
from duck.fit import fit
from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.methods.relabelling import loss_on_forget, wrong_labels
from duck.methods.stopping import Stop, stop_rule
from duck.runtime import seeded
from duck.types import Task


@METHODS.register("random-label")
@dataclass(frozen=True)
class RandomLabel:
    """Cross-entropy of the forget samples against one random wrong label each, until DUCK's stop rule says enough."""

    paper: ClassVar[str] = "Hayase 2020, arXiv:2012.11849"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = False
    forgets_by: ClassVar[Forgets] = "training"

    lr: float = 1e-3
    batch_size: int = 256
    max_epochs: int = 100
    """If the stop rule does not end it."""
    milestones: tuple[int, ...] = ()
    """Epochs after which the rate is multiplied by `gamma`."""
    gamma: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    stop: Stop = "auto"
    """As in DUCK."""
    tolerance: float = 0.01
    """Target of the forget accuracy where whole classes go."""
    check_every: int = 0
    """Steps between two looks at the stop rule; 0: once an epoch."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned, generator = clone(model), seeded(task.seed, "random-label")
        targets = wrong_labels(task, generator).to(task.forget.device)
        recipe = replace(
            task.recipe, optimizer="sgd", lr=self.lr, momentum=self.momentum, nesterov=False, weight_decay=self.weight_decay,
            schedule="step", milestones=self.milestones, gamma=self.gamma, epochs=self.max_epochs, batch_size=self.batch_size,
        )  # fmt: skip
        fit(
            unlearned, Passes("forget", task.forget, self.batch_size), loss_on_forget(targets), recipe, generator,
            phase="random-label", stop=stop_rule(unlearned, task, self.stop, self.tolerance), check_every=self.check_every,
            report=task.report, steady=True,
        )  # fmt: skip
        return unlearned
