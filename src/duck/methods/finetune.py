"""Fine-tuning on the retain set with a high learning rate (baseline of Cotogni et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from duck.methods._training import method_recipe
from duck.methods.base import METHODS, BaseMethod, ForgetsBy, clone
from duck.runtime import seeded
from duck.training.loop import train
from duck.types import Task


@METHODS.register("finetune")
@dataclass(frozen=True)
class FineTuning(BaseMethod):
    """Cross-entropy on the retain samples alone, augmented as in the original's training."""

    paper: ClassVar[str] = "baseline, Cotogni 2023, arXiv:2312.02052"
    forgets_by: ClassVar[ForgetsBy] = "omission"

    lr: float = 0.1
    batch_size: int = 32
    epochs: int = 30
    milestones: tuple[int, ...] = (8, 15)
    """Epochs after which the learning rate is multiplied by `gamma`."""
    gamma: float = 0.5
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned = clone(model)
        recipe = method_recipe(task, self, label_smoothing=0.0)
        train(unlearned, task.retain, recipe, seeded(task.seed, "finetune"), task.report)
        return unlearned
