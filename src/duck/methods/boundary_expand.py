"""Boundary Expanding (Chen et al. 2023): move the forget samples to a temporary class."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.methods._relabelling import RelabelledBatches, fixed_labels, label_loss
from duck.methods._training import fit_task, method_recipe
from duck.methods.base import METHODS, BaseMethod, Kinds, clone
from duck.models.head import PROBE_IMAGES, find_head
from duck.runtime import seeded
from duck.training.batching import ShuffledPass
from duck.types import Task

AffineHead = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


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


def affine_head(model: nn.Module, task: Task) -> AffineHead:
    """Return the classifier head, which must be a linear layer or a convolution."""
    name = find_head(model, next(task.forget.batches(PROBE_IMAGES)).images, task.head).name
    head = model.get_submodule(name)
    if not isinstance(head, AffineHead):
        raise BadInput(
            f"The head {name!r} is a {type(head).__name__}, not a Linear layer or a convolution."
        )
    return head


def widen(head: AffineHead, generator: torch.Generator) -> None:
    """Add one row in place, drawn as torch initialises a new layer."""
    bound = head.weight[0].numel() ** -0.5
    for name, old in _rows(head).items():
        row = torch.empty(1, *old.shape[1:]).uniform_(-bound, bound, generator=generator)
        setattr(head, name, nn.Parameter(torch.cat([old.detach(), row.to(old)]), old.requires_grad))


def narrow(head: AffineHead, classes: int) -> None:
    """Keep the rows of the first classes in place."""
    for name, old in _rows(head).items():
        setattr(head, name, nn.Parameter(old.detach()[:classes].clone(), old.requires_grad))


def _rows(head: AffineHead) -> dict[str, Tensor]:
    return dict(head.named_parameters(recurse=False))
