"""What every method is: the table of them, and the copy they work on."""

import copy
from collections.abc import Mapping
from typing import ClassVar, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from duck.errors import BadInput
from duck.registry import Registry
from duck.types import Task

Kinds = tuple[Literal["class", "samples"], ...]
Forgets = Literal["training", "omission", "nothing"]
"""training: passes over the forget samples; omission: never sees them."""


class Method(Protocol):
    """A frozen dataclass: its fields are the hyperparameters, its class attributes what `duck list methods` shows."""

    paper: ClassVar[str]
    scenarios: ClassVar[Kinds]
    needs_retain: ClassVar[bool]
    forgets_by: ClassVar[Forgets]

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        """A new model; the given one stays as it was."""


@runtime_checkable
class Prepares(Protocol):
    """A method that computes something beforehand: timed apart and cached, so that other requests to the same original find it."""

    prepared_from: ClassVar[tuple[str, ...]]
    """The fields that `prepare` depends on."""
    prepared_per_request: ClassVar[bool]
    """Whether it depends on who is to be forgotten."""

    def prepare(self, model: nn.Module, task: Task) -> Mapping[str, Tensor]:
        """Tensors for `task.prepared`. `__call__` must call it itself where `task.prepared` is None."""


METHODS: Registry[type[Method]] = Registry("method", group="duck.methods")


def clone(model: nn.Module) -> nn.Module:
    """A copy that shares nothing with the original and can be trained.

    Weights that are frozen among others stay so; of a model that is frozen as a whole, as for use, the copy is thawed.
    """
    twin = copy.deepcopy(model)
    frozen = not any(parameter.requires_grad for parameter in twin.parameters())
    for parameter in twin.parameters():
        parameter.grad = None
        # Of quantised models some are whole numbers, which have no gradients.
        parameter.requires_grad_(
            parameter.requires_grad or (frozen and parameter.is_floating_point())
        )
    return twin


def check_kind(method: str, kind: str) -> None:
    """An error where a method that removes classes is asked to forget single samples, or the other way round."""
    if kind not in METHODS[method].scenarios:
        able = ", ".join(name for name, cls in METHODS.items() if kind in cls.scenarios)
        can, asked = (
            ("whole classes", "single samples")
            if kind == "samples"
            else ("single samples", "whole classes")
        )
        raise BadInput(f"{method} can only forget {can}, not {asked}. Methods that can: {able}.")
