"""Random Label: train the forget samples towards wrong labels (Golatkar et al. 2020), as a rival in Cotogni et al. 2023."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from duck.batching import Passes
from duck.fit import fit
from duck.methods.base import METHODS, Forgets, Kinds, clone, loss_on_forget, other_classes
from duck.methods.stopping import Stop, stop_rule
from duck.runtime import seeded
from duck.types import Task


@METHODS.register("random-label")
@dataclass(frozen=True)
class RandomLabel:
    """Cross-entropy of the forget samples against one random wrong label each, until DUCK's stop rule says enough."""

    paper: ClassVar[str] = "Golatkar 2020, arXiv:1911.04933"
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
            report=task.report,
        )  # fmt: skip
        return unlearned


def wrong_labels(task: Task, generator: torch.Generator) -> Tensor:
    """For each forget sample a label drawn evenly from the classes that stay, without its own."""
    return torch.multinomial(other_classes(task).double(), 1, generator=generator).flatten()
