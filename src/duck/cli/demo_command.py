"""duck demo: train, forget, retrain, compare, audit and report on embedded data."""

import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from duck import files, runs
from duck.analysis.study import RESULT, analyse
from duck.artifacts import ArtifactStore, default_root
from duck.audits import verdict
from duck.audits.auditing import Case, audit_quick
from duck.audits.quick import Coverage
from duck.cli.console import emit, number, percent, print_table, say, training_progress, write
from duck.cli.exit_codes import DONE
from duck.cli.inputs import parse
from duck.data import load
from duck.experiment import Experiment, Training, fingerprint
from duck.methods.presets import default_recipe, preset
from duck.metrics import evaluate
from duck.models import build
from duck.originals import load_or_train
from duck.report import REPORT_MARK, read_runs, write_report
from duck.runtime import pick_device
from duck.scenarios import ForgetClasses, ForgetFraction, Request, describe
from duck.types import Data
from duck.unlearning import unlearn

REQUESTS: dict[str, Request] = {"class": ForgetClasses([3]), "tenth": ForgetFraction(0.1)}
METHODS = ("original", "retrained", "duck")
ROLES = {"original": "original", "retrained": "retrained", "duck": "unlearned"}
PAGE = "report.html"
POINTS = 800
"""Points in the map of the feature space: enough to see, and quick."""


@dataclass
class DemoFlags:
    """Train a small net on handwritten digits and make it forget the class 3, then a random tenth.

    Both are compared with retraining.
    """

    out: Path = Path("demo")
    """Folder for the runs and report.html."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    open: bool = False
    """Open the report in the browser."""
    json: bool = False
    """Print one JSON list of rows to stdout instead of a table."""


class AuditedRun(NamedTuple):
    """A row of the table, and the verdict of its quick audit."""

    row: dict[str, Any]
    verdict: str


def main(argv: list[str]) -> int:
    args = parse(DemoFlags, argv, "demo")
    files.check_replaceable(args.out / PAGE, REPORT_MARK.encode())
    with files.lock(args.out):
        _run(args)
    return DONE


def _run(args: DemoFlags) -> None:
    device = pick_device(args.device)
    data = load("digits", device=device)
    recipe = default_recipe(data.name, len(data.train), data.augment)
    training = Training(data.name, "convnet", recipe, args.seed, fingerprint=fingerprint(data))
    with training_progress("train convnet on digits") as watch:
        store = ArtifactStore(default_root(args.out))
        experiment = Experiment(training, seed=args.seed)
        original, _ = load_or_train(store, experiment, data, device, report=watch)
    audited: list[AuditedRun] = []
    for name in REQUESTS:
        audited += _run_scenario(args, name, original, data, training)
    report = write_report(args.out / PAGE, read_runs(Path(run.row["run"]) for run in audited))
    if args.json:
        emit([run.row for run in audited])
    else:
        _print_runs(audited, args.out, report)
    if args.open:
        webbrowser.open(report.resolve().as_uri())


def _run_scenario(
    args: DemoFlags, name: str, original: nn.Module, data: Data, training: Training
) -> list[AuditedRun]:
    request = REQUESTS[name]
    scenario = request(data, args.seed)
    before = evaluate(original, scenario)
    audited = []
    models = {"original": original}
    for method_name in METHODS:
        method = preset(method_name, data.name, scenario.kind, len(data.train))
        with training_progress(f"{method_name}: forget {name}") as watch:
            outcome = unlearn(
                method,
                original,
                scenario,
                new_model=partial(build, "convnet", data.num_classes, data.train.shape),
                recipe=training.recipe,
                original=before,
                watch=watch,
            )
        run = runs.record(Experiment(training, request, method, args.seed), scenario, outcome)
        folder = runs.save(run, outcome.model, args.out / f"{name}-{method_name}", overwrite=True)
        coverage = Coverage(outcome.processed, outcome.forget_samples)
        audit = audit_quick(
            Case(scenario, original, outcome.model, method_name, describe(request), coverage)
        )
        verdict.save(audit, folder)
        audited.append(AuditedRun(runs.row(folder, run), audit.verdict))
        models[ROLES[method_name]] = outcome.model
    if name == "class":
        say("Computing the feature space ...")
        analysis = analyse(models, scenario, points=POINTS).to_dict()
        files.write_json(folder / RESULT, analysis, indent=None)
    return audited


def _print_runs(audited: Sequence[AuditedRun], out: Path, report: Path) -> None:
    accuracies = [f"{name} %" for name in runs.COLUMNS[1:]]
    columns = ["forget", "method", "AUS", *accuracies, "seconds", "quick audit"]
    print_table(columns, [_cells(run) for run in audited])
    rows = {(run.row["scenario"], run.row["method"]): run.row for run in audited}
    notes: dict[str, None] = {}
    for scenario in dict.fromkeys(run.row["scenario"] for run in audited):
        duck = rows[scenario, "duck"]
        speedup = rows[scenario, "retrained"]["seconds"] / duck["seconds"]
        write(f"{scenario}: DUCK took 1/{speedup:.1f} of the time of retraining.")
        notes |= dict.fromkeys(duck["notes"])
    for note in notes:
        write(note)
    write(f"Report: {report}\nModels: {out}/*/{runs.WEIGHTS}")
    say(
        f"Next: `duck audit {out / 'class-duck'} --tier oracle` for a verdict, or the README for "
        "your own model and data."
    )


def _cells(run: AuditedRun) -> list[str]:
    row = run.row
    scores = row["scores"]
    accuracies = [percent(scores[name]) for name in runs.COLUMNS[1:]]
    seconds = f"{row['seconds']:.2f}"
    aus = number(scores["aus"])
    return [row["scenario"], row["method"], aus, *accuracies, seconds, run.verdict]
