"""Random Label: train the forget samples towards wrong labels (Hayase et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from duck.methods.base import METHODS, clone
from duck.methods.relabelling import loss_on_forget, wrong_labels
from duck.methods.stopping import UntilForgotten
from duck.runtime import seeded
from duck.types import Task


@METHODS.register("random-label")
@dataclass(frozen=True)
class RandomLabel(UntilForgotten):
    """Cross-entropy of the forget samples against one random wrong label each, until DUCK's stop rule says enough."""

    paper: ClassVar[str] = "Hayase 2020, arXiv:2012.11849"

    lr: float = 1e-3

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned, generator = clone(model), seeded(task.seed, "random-label")
        targets = wrong_labels(task, generator).to(task.forget.device)
        self.train(unlearned, task, loss_on_forget(targets), generator, "random-label")
        return unlearned
