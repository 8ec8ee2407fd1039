"""Negative Gradient: climb the loss on the forget samples (Golatkar et al. 2020), as a rival in Cotogni et al. 2023."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from duck.methods._relabelling import label_loss
from duck.methods._stopping import UntilForgotten
from duck.methods.base import METHODS, clone
from duck.runtime import seeded
from duck.training.batching import Passes, Step
from duck.types import Task


@METHODS.register("neg-grad")
@dataclass(frozen=True)
class NegGrad(UntilForgotten):
    """Ascend the cross-entropy of the forget samples until DUCK's stop rule says enough."""

    paper: ClassVar[str] = "Golatkar 2020, arXiv:1911.04933"

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned, forget = clone(model), Passes("forget", task.forget, self.batch_size)

        def ascent(net: nn.Module, step: Step) -> Tensor:
            return -label_loss(net, step)

        self.train(unlearned, task, forget, ascent, seeded(task.seed, "neg-grad"), "neg-grad")
        return unlearned
