"""Retraining: a new model trained on the retain set alone, with the original's recipe."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from duck.errors import BadInput
from duck.methods.base import METHODS, ForgetsBy, Kinds
from duck.runtime import device_of, global_seed, seeded
from duck.training.loop import train
from duck.types import Task


@METHODS.register("retrained")
@dataclass(frozen=True)
class Retrained:
    """Exact forgetting, at the cost of a whole training."""

    paper: ClassVar[str] = "baseline"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = True
    forgets_by: ClassVar[ForgetsBy] = "omission"

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        if task.new_model is None:
            # Resetting the parameters of a trained model would leave traces in its buffers.
            raise BadInput(
                "Retraining needs a function that builds a fresh model: pass new_model=."
            )
        generator = seeded(task.seed, "retrained")
        with global_seed(generator, device_of(model)):
            fresh = task.new_model().to(device_of(model))
        train(fresh, task.retain, task.recipe, generator, task.report)
        return fresh.train(model.training)
