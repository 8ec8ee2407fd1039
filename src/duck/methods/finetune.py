"""FineTuning: go on training on the retain samples at a high rate until the rest fades (baseline of Cotogni et al. 2023)."""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.runtime import seeded
from duck.training.loop import train
from duck.types import Task


@METHODS.register("finetune")
@dataclass(frozen=True)
class FineTuning:
    """Cross-entropy on the retain samples alone, augmented as the original's training was."""

    paper: ClassVar[str] = "baseline, Cotogni 2023, arXiv:2312.02052"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = True
    forgets_by: ClassVar[Forgets] = "omission"

    lr: float = 0.1
    batch_size: int = 32
    epochs: int = 30
    milestones: tuple[int, ...] = (8, 15)
    """Epochs after which the rate is multiplied by `gamma`."""
    gamma: float = 0.5
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned = clone(model)
        recipe = replace(
            task.recipe, optimizer="sgd", lr=self.lr, momentum=self.momentum, nesterov=False, weight_decay=self.weight_decay,
            schedule="step", milestones=self.milestones, gamma=self.gamma, epochs=self.epochs, batch_size=self.batch_size,
            label_smoothing=0.0,
        )  # fmt: skip
        train(unlearned, task.retain, recipe, seeded(task.seed, "finetune"), task.report)
        return unlearned
