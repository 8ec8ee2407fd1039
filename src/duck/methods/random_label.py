"""Random Label: train the forget samples towards random labels (Hayase et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from duck.errors import BadInput
from duck.methods._relabelling import Relabelled, label_loss, random_labels
from duck.methods._stopping import UntilForgotten
from duck.methods.base import METHODS, clone
from duck.runtime import seeded
from duck.training.batching import Passes
from duck.types import Task


@METHODS.register("random-label")
@dataclass(frozen=True)
class RandomLabel(UntilForgotten):
    """Cross-entropy of the forget samples against new random labels in every step, until DUCK's stop rule is met.

    Labels are drawn from the classes of the retain set: where a whole class goes, never its own; of single samples, possibly their own.
    """

    paper: ClassVar[str] = "Hayase 2020, arXiv:2012.11849"

    lr: float = 1e-3

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned, generator = clone(model), seeded(task.seed, "random-label")
        classes = task.retain.labels.unique()
        if len(classes) < 2:
            raise BadInput(
                "Random labels need at least two classes to draw from: the retain samples are all of one class."
            )
        forget = Passes("forget", task.forget, self.batch_size)
        self.train(
            unlearned,
            task,
            Relabelled(forget, random_labels(classes)),
            label_loss,
            generator,
            "random-label",
        )
        return unlearned
