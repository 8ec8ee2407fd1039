"""Make a trained image classifier forget classes or samples, and measure whether it worked."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duck.api import Result, audit, forget, train
    from duck.data import load
    from duck.errors import DuckError
    from duck.methods import METHODS, Duck, Original, Retrained
    from duck.methods.presets import preset
    from duck.metrics import aus, evaluate
    from duck.scenarios import (
        Debias,
        ForgetClasses,
        ForgetFraction,
        ForgetRandomClasses,
        ForgetSamples,
    )
    from duck.types import Data, Recipe, Scenario, Task
    from duck.unlearning import unlearn
    from duck.unlearning_runs import UnlearningRun, open_run

# Importing torch takes seconds: each name is imported at its first use.
_HOMES = {
    "duck.api": ("Result", "audit", "forget", "train"),
    "duck.data": ("load",),
    "duck.errors": ("DuckError",),
    "duck.unlearning": ("unlearn",),
    "duck.methods": ("METHODS", "Duck", "Original", "Retrained"),
    "duck.methods.presets": ("preset",),
    "duck.metrics": ("aus", "evaluate"),
    "duck.scenarios": (
        "Debias",
        "ForgetClasses",
        "ForgetFraction",
        "ForgetRandomClasses",
        "ForgetSamples",
    ),
    "duck.types": ("Data", "Recipe", "Scenario", "Task"),
    "duck.unlearning_runs": ("UnlearningRun", "open_run"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "METHODS",
    "Data",
    "Debias",
    "Duck",
    "DuckError",
    "ForgetClasses",
    "ForgetFraction",
    "ForgetRandomClasses",
    "ForgetSamples",
    "Original",
    "Recipe",
    "Result",
    "Retrained",
    "Scenario",
    "Task",
    "UnlearningRun",
    "audit",
    "aus",
    "evaluate",
    "forget",
    "load",
    "open_run",
    "preset",
    "train",
    "unlearn",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'duck' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
