"""Make a trained image classifier forget classes or samples, and measure whether it worked."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duck.api import Result, audit, forget, train
    from duck.assurance import AssureOptions
    from duck.commands.analyse import AnalyseOptions, analyse_runs
    from duck.commands.assure import assure_run, plan_assurance
    from duck.commands.debias import BiasOptions, DebiasOptions, debias_run
    from duck.commands.forget import ForgetOptions, forget_run
    from duck.commands.options import DataOptions, OriginalOptions, RunOptions
    from duck.commands.stored_runs import UnlearningRun, open_run
    from duck.commands.train import TrainOptions, train_run
    from duck.data import load
    from duck.demo import DemoOptions, run_demo
    from duck.display import Display
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

# Importing torch takes seconds: each name is imported at its first use.
_HOMES = {
    "duck.commands.analyse": ("AnalyseOptions", "analyse_runs"),
    "duck.commands.debias": ("BiasOptions", "DebiasOptions", "debias_run"),
    "duck.api": ("Result", "audit", "forget", "train"),
    "duck.assurance": ("AssureOptions",),
    "duck.data": ("load",),
    "duck.demo": ("DemoOptions", "run_demo"),
    "duck.display": ("Display",),
    "duck.errors": ("DuckError",),
    "duck.commands.assure": ("assure_run", "plan_assurance"),
    "duck.commands.forget": ("ForgetOptions", "forget_run"),
    "duck.commands.options": ("DataOptions", "OriginalOptions", "RunOptions"),
    "duck.commands.train": ("TrainOptions", "train_run"),
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
    "duck.commands.stored_runs": ("UnlearningRun", "open_run"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "METHODS",
    "AnalyseOptions",
    "AssureOptions",
    "BiasOptions",
    "Data",
    "DataOptions",
    "Debias",
    "DebiasOptions",
    "DemoOptions",
    "Display",
    "Duck",
    "DuckError",
    "ForgetClasses",
    "ForgetFraction",
    "ForgetOptions",
    "ForgetRandomClasses",
    "ForgetSamples",
    "Original",
    "OriginalOptions",
    "Recipe",
    "Result",
    "Retrained",
    "RunOptions",
    "Scenario",
    "Task",
    "TrainOptions",
    "UnlearningRun",
    "analyse_runs",
    "assure_run",
    "audit",
    "aus",
    "debias_run",
    "evaluate",
    "forget",
    "forget_run",
    "load",
    "open_run",
    "plan_assurance",
    "preset",
    "run_demo",
    "train",
    "train_run",
    "unlearn",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'duck' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
