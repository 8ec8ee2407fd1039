"""Make a trained image classifier forget classes or samples, and measure whether it worked."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duck.api import Result as Result
    from duck.api import audit as audit
    from duck.api import forget as forget
    from duck.api import train as train
    from duck.assurance import AssureOptions as AssureOptions
    from duck.audits.verdict import Limits as Limits
    from duck.commands.analyse import AnalyseOptions as AnalyseOptions
    from duck.commands.analyse import analyse_runs as analyse_runs
    from duck.commands.assure import assure_run as assure_run
    from duck.commands.assure import plan_assurance as plan_assurance
    from duck.commands.debias import BiasOptions as BiasOptions
    from duck.commands.debias import DebiasOptions as DebiasOptions
    from duck.commands.debias import debias_run as debias_run
    from duck.commands.forget import ForgetOptions as ForgetOptions
    from duck.commands.forget import forget_run as forget_run
    from duck.commands.options import DataOptions as DataOptions
    from duck.commands.options import OriginalOptions as OriginalOptions
    from duck.commands.options import RunOptions as RunOptions
    from duck.commands.stored_runs import UnlearningRun as UnlearningRun
    from duck.commands.stored_runs import open_run as open_run
    from duck.commands.train import TrainOptions as TrainOptions
    from duck.commands.train import train_run as train_run
    from duck.data import load as load
    from duck.demo import DemoOptions as DemoOptions
    from duck.demo import run_demo as run_demo
    from duck.display import Display as Display
    from duck.errors import DuckError as DuckError
    from duck.methods import METHODS as METHODS
    from duck.methods import Duck as Duck
    from duck.methods import Original as Original
    from duck.methods import Retrained as Retrained
    from duck.methods.presets import preset as preset
    from duck.metrics import aus as aus
    from duck.metrics import evaluate as evaluate
    from duck.scenarios import Debias as Debias
    from duck.scenarios import ForgetClasses as ForgetClasses
    from duck.scenarios import ForgetFraction as ForgetFraction
    from duck.scenarios import ForgetRandomClasses as ForgetRandomClasses
    from duck.scenarios import ForgetSamples as ForgetSamples
    from duck.types import Data as Data
    from duck.types import Recipe as Recipe
    from duck.types import Scenario as Scenario
    from duck.types import Task as Task
    from duck.unlearning import unlearn as unlearn

# Importing torch takes seconds: each name is imported at its first use.
_HOMES = {
    "duck.commands.analyse": ("AnalyseOptions", "analyse_runs"),
    "duck.commands.debias": ("BiasOptions", "DebiasOptions", "debias_run"),
    "duck.api": ("Result", "audit", "forget", "train"),
    "duck.assurance": ("AssureOptions",),
    "duck.audits.verdict": ("Limits",),
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

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'duck' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
