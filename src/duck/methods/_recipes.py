"""The recipe of methods that train with stochastic gradient descent."""

from dataclasses import replace
from typing import Any, Protocol

from duck.types import Recipe


class SgdSettings(Protocol):
    """The hyperparameters that all methods with SGD have."""

    @property
    def lr(self) -> float: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...


def sgd_recipe(original: Recipe, settings: SgdSettings, **changes: Any) -> Recipe:
    """Return the original's recipe with the settings of a method and further changes.

    The learning rate is constant unless the changes contain milestones.
    """
    values: dict[str, Any] = {
        "optimizer": "sgd",
        "lr": settings.lr,
        "batch_size": settings.batch_size,
        "momentum": settings.momentum,
        "nesterov": False,
        "weight_decay": settings.weight_decay,
        "schedule": "step" if "milestones" in changes else "constant",
    }
    return replace(original, **{**values, **changes})
