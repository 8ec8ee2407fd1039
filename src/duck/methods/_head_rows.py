"""Rows of a classifier head: one for each class, added, removed and reinitialised."""

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from duck.errors import BadInput
from duck.models.head import PROBE_IMAGES, compute_logits, find_head
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
    """Reinitialise the rows of classes without retain samples, in place.

    Frozen rows stay as they are, and those of a head that is no linear layer or convolution. The
    task gets a note of it.
    """
    forgotten = torch.isin(task.forget.labels, task.retain.labels).logical_not()
    if not forgotten.any():
        return
    classes = task.forget.labels[forgotten].unique()
    head = _layer_of_logits(model, task)
    if head is None or not _redraw(head, classes, generator):
        task.note(
            "The head's weights of the forgotten classes were not reinitialised: they are frozen, "
            "or the head is no Linear layer or convolution, or it was not found (then name it: "
            "head=). They may still rank the samples."
        )


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


def _layer_of_logits(model: nn.Module, task: Task) -> AffineHead | None:
    """Return the layer with a row for each logit; a named head may hold it, or come before it."""
    images = next(task.forget.batches(PROBE_IMAGES)).images
    count = compute_logits(model, images).shape[1]
    try:
        _, head = _find(model, task)
    except BadInput:
        if task.head is not None:
            raise
        return None  # Other methods need the head, this one can do without.
    if task.head is not None and not _has_rows(head, count):
        try:
            head = model.get_submodule(find_head(model, images).name)
        except BadInput:
            return None
    return head if isinstance(head, AffineHead) and _has_rows(head, count) else None


def _has_rows(head: nn.Module, count: int) -> bool:
    return isinstance(head, AffineHead) and len(head.weight) == count


def _redraw(head: AffineHead, classes: Tensor, generator: torch.Generator) -> bool:
    """Reinitialise rows in place; return False if those of the weight must stay."""
    weights = {
        name: weight
        for name, weight in _rows(head).items()
        if weight.requires_grad and weight.dim() and len(weight) == len(head.weight)
    }
    with torch.no_grad():
        for weight in weights.values():
            weight[classes.to(weight.device)] = _drawn(weight, len(classes), head, generator)
        drawn = [*weights, *_redraw_parametrized(head, classes, generator)]
    return any(name.startswith("weight") for name in drawn)


def _redraw_parametrized(
    head: AffineHead, classes: Tensor, generator: torch.Generator
) -> list[str]:
    """Reinitialise rows that are computed from others, as by weight_norm; return their names."""
    names = [name for name in ("weight", "bias") if is_parametrized(head, name)]
    drawn = []
    for name in names:
        parts = head.get_submodule(f"parametrizations.{name}")
        is_frozen = not all(weight.requires_grad for weight in parts.parameters(recurse=False))
        if is_frozen or not all(hasattr(part, "right_inverse") for part in parts.children()):
            continue
        weight = getattr(head, name).clone()
        weight[classes.to(weight.device)] = _drawn(weight, len(classes), head, generator)
        setattr(head, name, weight)
        drawn.append(name)
    return drawn


def _drawn(weight: Tensor, count: int, head: AffineHead, generator: torch.Generator) -> Tensor:
    """Return rows drawn as torch initialises a new layer."""
    bound = head.weight[0].numel() ** -0.5
    rows = torch.empty(count, *weight.shape[1:]).uniform_(-bound, bound, generator=generator)
    return rows.to(weight)


def _rows(head: AffineHead) -> dict[str, Tensor]:
    return dict(head.named_parameters(recurse=False))
