"""Boundary Expanding (Chen et al. 2023): send the forget samples to a class that is made for them and then taken away."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.methods._relabelling import Relabelled, fixed_labels, label_loss
from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.models.head import PROBES, probe
from duck.runtime import seeded
from duck.training.batching import Passes
from duck.training.loop import fit
from duck.types import Task

AffineHead = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


@METHODS.register("boundary-expand")
@dataclass(frozen=True)
class BoundaryExpand:
    """Widen the head by a shadow class, train the forget samples towards it, and cut it off."""

    paper: ClassVar[str] = "Chen 2023, arXiv:2303.11570"
    scenarios: ClassVar[Kinds] = ("class",)
    needs_retain: ClassVar[bool] = False
    forgets_by: ClassVar[Forgets] = "training"

    lr: float = 1e-5
    batch_size: int = 64
    epochs: int = 10
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned, generator = clone(model), seeded(task.seed, "boundary-expand")
        head = affine_head(unlearned, task)
        classes = len(head.weight)
        widen(head, generator)
        shadow = torch.full((len(task.forget),), classes, device=task.forget.device)
        recipe = replace(
            task.recipe, optimizer="sgd", lr=self.lr, momentum=self.momentum, nesterov=False, weight_decay=self.weight_decay,
            schedule="constant", epochs=self.epochs, batch_size=self.batch_size,
        )  # fmt: skip
        batches = Relabelled(Passes("forget", task.forget, self.batch_size), fixed_labels(shadow))
        fit(
            unlearned,
            batches,
            label_loss,
            recipe,
            generator,
            phase="boundary-expand",
            report=task.report,
            steady=True,
        )
        narrow(head, classes)
        return unlearned


def affine_head(model: nn.Module, task: Task) -> AffineHead:
    name = probe(model, next(task.forget.batches(PROBES)).images, task.head).name
    head = model.get_submodule(name)
    if not isinstance(head, AffineHead):
        raise BadInput(
            f"Boundary Expanding widens a Linear or 1x1 convolution; the head {name!r} is a {type(head).__name__}."
        )
    return head


def widen(head: AffineHead, generator: torch.Generator) -> None:
    """One more row, drawn as torch draws the weights of a new layer; the others stay."""
    bound = head.weight[0].numel() ** -0.5
    for name, old in _rows(head).items():
        row = torch.empty(1, *old.shape[1:]).uniform_(-bound, bound, generator=generator)
        setattr(head, name, nn.Parameter(torch.cat([old.detach(), row.to(old)]), old.requires_grad))


def narrow(head: AffineHead, classes: int) -> None:
    """The first rows alone."""
    for name, old in _rows(head).items():
        setattr(head, name, nn.Parameter(old.detach()[:classes].clone(), old.requires_grad))


def _rows(head: AffineHead) -> dict[str, Tensor]:
    return dict(head.named_parameters(recurse=False))
