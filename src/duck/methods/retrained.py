"""Retraining: a new model trained on the retain set alone, with the original's recipe."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from duck.methods._training import new_model
from duck.methods.base import METHODS, BaseMethod, ForgetsBy
from duck.runtime import seeded
from duck.training.loop import train
from duck.types import Task


@METHODS.register("retrained")
@dataclass(frozen=True)
class Retrained(BaseMethod):
    """Exact forgetting, at the cost of a whole training."""

    paper: ClassVar[str] = "baseline"
    forgets_by: ClassVar[ForgetsBy] = "omission"

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        generator = seeded(task.seed, "retrained")
        fresh = new_model("retrained", model, task, generator)
        train(fresh, task.retain, task.recipe, generator, task.report)
        return fresh.train(model.training)
