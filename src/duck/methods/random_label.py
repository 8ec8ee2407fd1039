"""Random Label: train the forget samples towards random labels (Hayase et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from duck.errors import BadInput
from duck.methods._relabelling import RelabelledBatches, label_loss, random_labels
from duck.methods._stopping import ForgetSetTraining
from duck.methods.base import METHODS, retained_classes
from duck.training.batching import ShuffledPass
from duck.types import Task


@METHODS.register("random-label")
@dataclass(frozen=True)
class RandomLabel(ForgetSetTraining):
    """Train the forget samples towards new random labels in every step, until DUCK's stop rule.

    The labels are drawn from the classes that remain. If a whole class is forgotten, its own
    label is never drawn; single samples may get their own label.
    """

    paper: ClassVar[str] = "Hayase 2020, arXiv:2012.11849"

    lr: float = 1e-3

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        classes = retained_classes(task)
        if len(classes) < 2:
            raise BadInput("Random labels need at least two classes: only one remains.")
        forget = ShuffledPass("forget", task.forget, self.batch_size)
        batches = RelabelledBatches(forget, random_labels(classes))
        return self.train("random-label", model, task, batches, label_loss)
