"""Make a trained image classifier forget classes or samples, and measure whether it worked."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duck.api import Result as Result
    from duck.api import audit as audit
    from duck.api import forget as forget
    from duck.api import train as train
    from duck.assurance import AssureOptions as AssureOptions
    from duck.audits.options import AuditOptions as AuditOptions
    from duck.audits.verdict import Limits as Limits
    from duck.bench.run_bench import BenchOptions as BenchOptions
    from duck.bench.run_bench import run_grid as run_grid
    from duck.commands.analyse import AnalyseOptions as AnalyseOptions
    from duck.commands.analyse import analyse_runs as analyse_runs
    from duck.commands.assure import assure_run as assure_run
    from duck.commands.assure import plan_assurance as plan_assurance
    from duck.commands.audit import audit_run as audit_run
    from duck.commands.compare import compare_methods as compare_methods
    from duck.commands.debias import BiasOptions as BiasOptions
    from duck.commands.debias import DebiasOptions as DebiasOptions
    from duck.commands.debias import debias_run as debias_run
    from duck.commands.forget import ForgetOptions as ForgetOptions
    from duck.commands.forget import forget_run as forget_run
    from duck.commands.options import DataOptions as DataOptions
    from duck.commands.options import OriginalOptions as OriginalOptions
    from duck.commands.options import RunOptions as RunOptions
    from duck.commands.pool import PoolOptions as PoolOptions
    from duck.commands.pool import make_pool as make_pool
    from duck.commands.show import show_run as show_run
    from duck.commands.stored_runs import UnlearningRun as UnlearningRun
    from duck.commands.stored_runs import open_run as open_run
    from duck.commands.train import TrainOptions as TrainOptions
    from duck.commands.train import train_run as train_run
    from duck.commands.tune import TuneOptions as TuneOptions
    from duck.commands.tune import tune_method as tune_method
    from duck.comparison import CompareOptions as CompareOptions
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
    from duck.report.report_runs import ReportOptions as ReportOptions
    from duck.report.report_runs import report_runs as report_runs
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
_NAMES_OF_MODULES = {
    "duck.api": ("Result", "audit", "forget", "train"),
    "duck.assurance": ("AssureOptions",),
    "duck.audits.options": ("AuditOptions",),
    "duck.audits.verdict": ("Limits",),
    "duck.bench.run_bench": ("BenchOptions", "run_grid"),
    "duck.commands.analyse": ("AnalyseOptions", "analyse_runs"),
    "duck.commands.assure": ("assure_run", "plan_assurance"),
    "duck.commands.audit": ("audit_run",),
    "duck.commands.compare": ("compare_methods",),
    "duck.commands.debias": ("BiasOptions", "DebiasOptions", "debias_run"),
    "duck.commands.forget": ("ForgetOptions", "forget_run"),
    "duck.commands.options": ("DataOptions", "OriginalOptions", "RunOptions"),
    "duck.commands.pool": ("PoolOptions", "make_pool"),
    "duck.commands.show": ("show_run",),
    "duck.commands.stored_runs": ("UnlearningRun", "open_run"),
    "duck.commands.train": ("TrainOptions", "train_run"),
    "duck.commands.tune": ("TuneOptions", "tune_method"),
    "duck.comparison": ("CompareOptions",),
    "duck.data": ("load",),
    "duck.demo": ("DemoOptions", "run_demo"),
    "duck.display": ("Display",),
    "duck.errors": ("DuckError",),
    "duck.methods": ("METHODS", "Duck", "Original", "Retrained"),
    "duck.methods.presets": ("preset",),
    "duck.metrics": ("aus", "evaluate"),
    "duck.report.report_runs": ("ReportOptions", "report_runs"),
    "duck.scenarios": (
        "Debias",
        "ForgetClasses",
        "ForgetFraction",
        "ForgetRandomClasses",
        "ForgetSamples",
    ),
    "duck.types": ("Data", "Recipe", "Scenario", "Task"),
    "duck.unlearning": ("unlearn",),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF_MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'duck' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
