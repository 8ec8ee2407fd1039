"""Negative Gradient: climb the loss on the forget samples (Golatkar et al. 2020), as a rival in Cotogni et al. 2023."""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn

from duck.batching import Passes, Step
from duck.fit import Loss, fit
from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.methods.relabelling import loss_on_forget
from duck.methods.stopping import Stop, stop_rule
from duck.runtime import seeded
from duck.types import Task


@METHODS.register("neg-grad")
@dataclass(frozen=True)
class NegGrad:
    """Ascend the cross-entropy of the forget samples until DUCK's stop rule says enough."""

    paper: ClassVar[str] = "Golatkar 2020, arXiv:1911.04933"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = False
    forgets_by: ClassVar[Forgets] = "training"

    lr: float = 1e-2
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
        unlearned, generator = clone(model), seeded(task.seed, "neg-grad")
        recipe = replace(
            task.recipe, optimizer="sgd", lr=self.lr, momentum=self.momentum, nesterov=False, weight_decay=self.weight_decay,
            schedule="step", milestones=self.milestones, gamma=self.gamma, epochs=self.max_epochs, batch_size=self.batch_size,
        )  # fmt: skip
        fit(
            unlearned, Passes("forget", task.forget, self.batch_size), self._loss(task), recipe, generator,
            phase="neg-grad", stop=stop_rule(unlearned, task, self.stop, self.tolerance), check_every=self.check_every,
            report=task.report, steady=True,
        )  # fmt: skip
        return unlearned

    def _loss(self, task: Task) -> Loss:
        descent = loss_on_forget(task.forget.labels.to(task.forget.device))

        def loss(net: nn.Module, step: Step) -> Tensor:
            return -descent(net, step)

        return loss
