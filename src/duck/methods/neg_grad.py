"""Negative Gradient (Golatkar et al. 2020), with the stop rule of Cotogni et al. 2023."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from duck.methods._relabelling import label_loss
from duck.methods._stopping import ForgetSetTraining
from duck.methods.base import METHODS
from duck.training.batching import ShuffledPass
from duck.types import Task


@METHODS.register("neg-grad")
@dataclass(frozen=True)
class NegGrad(ForgetSetTraining):
    """Maximise the cross-entropy of the forget samples until DUCK's stop rule is met."""

    paper: ClassVar[str] = "Golatkar 2020, arXiv:1911.04933"

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        forget = ShuffledPass("forget", task.forget, self.batch_size)
        return self.train("neg-grad", model, task, forget, lambda net, step: -label_loss(net, step))
