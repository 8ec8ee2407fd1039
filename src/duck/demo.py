"""The demonstration: train, forget, retrain, audit and report on embedded data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from duck import files, runs
from duck.analysis.study import RESULT, analyse
from duck.artifacts import ArtifactStore, default_root
from duck.audits import verdict
from duck.audits.auditing import Case, audit_quick
from duck.audits.quick import Coverage
from duck.display import Display
from duck.experiment import Experiment, Training
from duck.methods.presets import default_recipe, preset
from duck.metrics import evaluate
from duck.options import DataOptions, model_factory
from duck.originals import load_or_train
from duck.report import REPORT_MARK, Contents, read_runs, write_report
from duck.runtime import pick_device
from duck.scenarios import ForgetClasses, ForgetFraction, Request, describe
from duck.types import Data
from duck.unlearning import unlearn

REQUESTS: dict[str, Request] = {"class": ForgetClasses([3]), "tenth": ForgetFraction(0.1)}
ROLES = {"original": "original", "retrained": "retrained", "duck": "unlearned"}
"""The methods, and what their models are called in the analysis."""
PAGE = "report.html"
POINTS = 800
"""Points in the map of the feature space: enough to see, and quick."""


@dataclass(frozen=True)
class DemoOptions:
    """Where the demonstration is stored, and how it runs."""

    out: Path = Path("demo")
    """Folder for the runs and report.html."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, ..."""


@dataclass(frozen=True)
class DemoRun:
    """A stored run of the demonstration."""

    row: dict[str, Any]
    """The run as a row of a table or of JSON."""
    verdict: str
    """Of the quick audit."""


@dataclass(frozen=True)
class Demo:
    """The runs of the demonstration and the page about them."""

    runs: list[DemoRun]
    report: Path


def run_demo(options: DemoOptions | None = None, display: Display | None = None) -> Demo:
    """Train a small net on handwritten digits, make it forget, retrain, audit and report."""
    chosen = options or DemoOptions()
    files.check_replaceable(chosen.out / PAGE, REPORT_MARK.encode())
    with files.lock(chosen.out):
        return _run(chosen, display or Display())


def _run(options: DemoOptions, display: Display) -> Demo:
    device = pick_device(options.device)
    source = DataOptions("digits")
    data = source.load().to(device)
    recipe = default_recipe(data.name, len(data.train), data.augment)
    training = source.training(data, "convnet", recipe, options.seed)
    with display.training("train convnet on digits") as watch:
        store = ArtifactStore(default_root(options.out))
        experiment = Experiment(training, seed=options.seed)
        original, _ = load_or_train(store, experiment, data, device, report=watch)
    audited: list[DemoRun] = []
    for name in REQUESTS:
        audited += _run_request(name, options, original, data, training, display)
    folders = [Path(run.row["run"]) for run in audited]
    return Demo(audited, write_report(options.out / PAGE, Contents(read_runs(folders))))


def _run_request(
    name: str,
    options: DemoOptions,
    original: nn.Module,
    data: Data,
    training: Training,
    display: Display,
) -> list[DemoRun]:
    request = REQUESTS[name]
    scenario = request(data, options.seed)
    before = evaluate(original, scenario)
    audited = []
    models = {"original": original}
    for method_name, role in ROLES.items():
        method = preset(method_name, data.name, scenario.kind, len(data.train))
        with display.training(f"{method_name}: forget {name}") as watch:
            outcome = unlearn(
                method,
                original,
                scenario,
                new_model=model_factory(training, data),
                recipe=training.recipe,
                original=before,
                watch=watch,
            )
        run = runs.record(Experiment(training, request, method, options.seed), scenario, outcome)
        place = options.out / f"{name}-{method_name}"
        folder = runs.save(run, outcome.model, place, overwrite=True)
        coverage = Coverage(outcome.processed, outcome.forget_samples)
        audit = audit_quick(
            Case(scenario, original, outcome.model, method_name, describe(request), coverage)
        )
        verdict.save(audit, folder)
        audited.append(DemoRun(runs.row(folder, run), audit.verdict))
        models[role] = outcome.model
    if name == "class":
        display.message("Computing the feature space ...")
        analysis = analyse(models, scenario, points=POINTS).to_dict()
        files.write_json(folder / RESULT, analysis, indent=None)
    return audited
