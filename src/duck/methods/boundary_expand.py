"""Boundary Expanding (Chen et al. 2023): move the forget samples to a temporary class."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from duck.methods._head_rows import affine_head, narrow, widen
from duck.methods._relabelling import RelabelledBatches, fixed_labels, label_loss
from duck.methods._training import fit_task, method_recipe
from duck.methods.base import METHODS, BaseMethod, Kinds, clone
from duck.runtime import seeded
from duck.training.batching import ShuffledPass
from duck.types import Task


@METHODS.register("boundary-expand")
@dataclass(frozen=True)
class BoundaryExpand(BaseMethod):
    """Add a shadow class to the head, train the forget samples towards it, and remove it."""

    paper: ClassVar[str] = "Chen 2023, arXiv:2303.11570"
    scenarios: ClassVar[Kinds] = ("class",)
    needs_retain: ClassVar[bool] = False

    lr: float = 1e-5
    batch_size: int = 64
    epochs: int = 10
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned = clone(model)
        generator = seeded(task.seed, "boundary-expand")
        head = affine_head(unlearned, task)
        classes = len(head.weight)
        widen(head, generator)
        shadow = torch.full((len(task.forget),), classes, device=task.forget.device)
        forget = ShuffledPass("forget", task.forget, self.batch_size)
        batches = RelabelledBatches(forget, fixed_labels(shadow))
        recipe = method_recipe(task, self)
        fit_task(task, unlearned, batches, label_loss, recipe, generator, "boundary-expand")
        narrow(head, classes)
        return unlearned
