"""Rows of a classifier head: one for each class, added, removed and drawn afresh."""

import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.models.head import PROBE_IMAGES, find_head
from duck.types import Task

AffineHead = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


def affine_head(model: nn.Module, task: Task) -> AffineHead:
    """Return the classifier head, which must be a linear layer or a convolution."""
    name, head = _find(model, task)
    if not isinstance(head, AffineHead):
        raise BadInput(
            f"The head {name!r} is a {type(head).__name__}, not a Linear layer or a convolution."
        )
    return head


def redraw_forgotten(model: nn.Module, task: Task, generator: torch.Generator) -> None:
    """Draw the rows of classes without retain samples afresh, in place.

    A head that is no linear layer or convolution, or has other rows than classes, stays as it is.
    """
    forgotten = torch.isin(task.forget.labels, task.retain.labels).logical_not()
    if not forgotten.any():
        return
    classes = task.forget.labels[forgotten].unique()
    _, head = _find(model, task)
    if isinstance(head, AffineHead) and len(head.weight) == task.num_classes:
        with torch.no_grad():
            for weight in _rows(head).values():
                rows = _drawn(weight, len(classes), head, generator)
                weight[classes.to(weight.device)] = rows


def widen(head: AffineHead, generator: torch.Generator) -> None:
    """Add one row in place."""
    for name, old in _rows(head).items():
        row = _drawn(old, 1, head, generator)
        setattr(head, name, nn.Parameter(torch.cat([old.detach(), row]), old.requires_grad))


def narrow(head: AffineHead, classes: int) -> None:
    """Keep the rows of the first classes in place."""
    for name, old in _rows(head).items():
        setattr(head, name, nn.Parameter(old.detach()[:classes].clone(), old.requires_grad))


def _find(model: nn.Module, task: Task) -> tuple[str, nn.Module]:
    name = find_head(model, next(task.forget.batches(PROBE_IMAGES)).images, task.head).name
    return name, model.get_submodule(name)


def _drawn(weight: Tensor, count: int, head: AffineHead, generator: torch.Generator) -> Tensor:
    """Return rows drawn as torch initialises a new layer."""
    bound = head.weight[0].numel() ** -0.5
    rows = torch.empty(count, *weight.shape[1:]).uniform_(-bound, bound, generator=generator)
    return rows.to(weight)


def _rows(head: AffineHead) -> dict[str, Tensor]:
    return dict(head.named_parameters(recurse=False))
