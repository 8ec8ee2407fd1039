"""The interface of a method, the registry of methods, and the copy that a method trains."""

import copy
from collections.abc import Mapping
from typing import ClassVar, Literal, Protocol, runtime_checkable

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


def check_kind(method: str, kind: str) -> None:
    """Raise an error if the method cannot forget whole classes or single samples, as requested."""
    if kind in METHODS[method].scenarios:
        return
    alternatives = ", ".join(name for name, cls in METHODS.items() if kind in cls.scenarios)
    requested, possible = "whole classes", "single samples"
    if kind == "samples":
        requested, possible = possible, requested
    raise BadInput(
        f"{method} can only forget {possible}, not {requested}. Methods that can: {alternatives}."
    )
