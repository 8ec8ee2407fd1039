"""What methods share in training: their recipe, new models, and `fit` with the task's report."""

from dataclasses import fields, replace
from typing import Any, Literal

import torch
from torch import nn

from duck.errors import BadInput
from duck.methods.base import clone
from duck.runtime import device_of, global_seed, seeded
from duck.training.batching import Batches
from duck.training.loop import Loss, fit
from duck.types import Recipe, Task


def method_recipe(
    task: Task, method: Any, optimizer: Literal["sgd", "adam"] = "sgd", **changes: Any
) -> Recipe:
    """Return the original's recipe with all fields that the method has, too, and further changes.

    The learning rate is constant, unless there are milestones.
    """
    shared = {field.name for field in fields(Recipe)} & {field.name for field in fields(method)}
    values = {name: getattr(method, name) for name in shared} | changes
    schedule = "step" if "milestones" in values else "constant"
    defaults: dict[str, Any] = {"optimizer": optimizer, "schedule": schedule, "nesterov": False}
    return replace(task.recipe, **{**defaults, **values})


def fit_task(
    task: Task,
    net: nn.Module,
    batches: Batches,
    loss: Loss,
    recipe: Recipe,
    generator: torch.Generator,
    phase: str,
    **options: Any,
) -> None:
    """Train in place with `fit`; the loss must not depend on Python state."""
    options |= {"phase": phase, "report": task.report, "capturable": True}
    fit(net, batches, loss, recipe, generator, **options)


def train_copy(
    name: str,
    method: Any,
    model: nn.Module,
    task: Task,
    batches: Batches,
    loss: Loss,
    **options: Any,
) -> nn.Module:
    """Return a copy of the model, trained by the recipe of the method.

    name    that of the phase and of the generator
    """
    unlearned = clone(model)
    recipe = method_recipe(task, method)
    fit_task(task, unlearned, batches, loss, recipe, seeded(task.seed, name), name, **options)
    return unlearned


def new_model(method: str, model: nn.Module, task: Task, generator: torch.Generator) -> nn.Module:
    """Return a randomly initialised model on the device of the original."""
    if task.new_model is None:
        # Resetting the parameters of a trained model would leave traces in its buffers.
        raise BadInput(f"{method} needs a function that builds a new model: pass new_model=.")
    with global_seed(generator, device_of(model)):
        return task.new_model().to(device_of(model))
