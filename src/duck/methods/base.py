"""The interface of a method, the registry of methods and what they need, and the copy that a method
trains."""

import copy
from collections.abc import Mapping
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.registry import Registry
from duck.types import Task

Kinds = tuple[Literal["class", "samples"], ...]
ForgetsBy = Literal["training", "omission", "nothing"]
"""training: the method trains on the forget samples; omission: it never uses them."""


class Method(Protocol):
    """A frozen dataclass whose fields are the hyperparameters of an unlearning method.

    `duck list methods` shows the class attributes.
    """

    paper: ClassVar[str]
    scenarios: ClassVar[Kinds]
    needs_retain: ClassVar[bool]
    forgets_by: ClassVar[ForgetsBy]

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        """Return the unlearned model; `model` does not change."""


@runtime_checkable
class PreparingMethod(Protocol):
    """A method with a preparation, which is timed separately and cached.

    Later requests to the same original reuse it.
    """

    prepared_from: ClassVar[tuple[str, ...]]
    """The fields that `prepare` depends on."""
    prepared_per_request: ClassVar[bool]
    """Whether `prepare` depends on the forget set."""

    def prepare(self, model: nn.Module, task: Task) -> Mapping[str, Tensor]:
        """Return the tensors for `task.prepared`.

        `__call__` must call `prepare` itself if `task.prepared` is None.
        """


class BaseMethod:
    """The class attributes of most methods; others override them."""

    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = True
    forgets_by: ClassVar[ForgetsBy] = "training"


METHODS: Registry[type[Method]] = Registry("method", group="duck.methods")


def clone(model: nn.Module) -> nn.Module:
    """Return a trainable copy that shares no tensors with the model.

    Frozen parameters stay frozen. If all parameters are frozen, as in a model that was prepared
    for inference, the copy is unfrozen.
    """
    copied = copy.deepcopy(model)
    all_frozen = not any(parameter.requires_grad for parameter in copied.parameters())
    for parameter in copied.parameters():
        parameter.grad = None
        # Quantised models have integer parameters, which cannot have gradients.
        unfreeze = all_frozen and parameter.is_floating_point()
        parameter.requires_grad_(parameter.requires_grad or unfreeze)
    return copied


def retained_classes(task: Task) -> Tensor:
    """Return the classes that remain: those with retain samples.

    Without any retain sample these are all classes of the model except those to be forgotten.
    """
    classes = torch.arange(task.num_classes)
    if len(task.retain):
        return classes[torch.isin(classes, task.retain.labels)]
    is_forgotten = torch.isin(classes, task.forget.labels)
    return classes[~is_forgotten] if task.kind == "class" else classes


def retain_free(kind: str) -> list[str]:
    """Return the methods for a kind of request that need no retain samples."""
    return [
        name
        for name, cls in METHODS.items()
        if kind in cls.scenarios and not cls.needs_retain and cls.forgets_by != "nothing"
    ]


def check_kind(method: str, kind: str, has_retain: bool = True) -> None:
    """Raise an error if the method cannot forget whole classes or single samples, as requested.

    Where there are no retain samples, also if it needs them.
    """
    able = [name for name, cls in METHODS.items() if kind in cls.scenarios]
    alternatives = ", ".join(able if has_retain else retain_free(kind))
    if METHODS[method].needs_retain and not has_retain:
        raise BadInput(
            f"{method} needs retain samples, and the request has all training samples. Give "
            f"others, too, or use a method that needs none: {alternatives}."
        )
    if method in able:
        return
    requested, possible = "whole classes", "single samples"
    if kind == "samples":
        requested, possible = possible, requested
    raise BadInput(
        f"{method} can only forget {possible}, not {requested}. Methods that can: {alternatives}."
    )
