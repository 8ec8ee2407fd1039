"""duck demo: the whole way on embedded data: train, forget a class and a tenth, retrain, compare, audit, look inside, report."""

import webbrowser
from dataclasses import dataclass
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
"""Of the map of the feature space: enough to see, and quick."""


@dataclass
class Demo:
    """Train a small net on handwritten digits, make it forget the class 3, then a random tenth, and compare with retraining."""

    out: Path = Path("demo")
    """Folder for the runs and report.html."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    open: bool = False
    """Open the report in the browser."""
    json: bool = False
    """One JSON list of rows to stdout instead of a table."""


class Done(NamedTuple):
    row: dict[str, Any]
    verdict: str


def main(argv: list[str]) -> int:
    args = parse(Demo, argv, "demo")
    files.check_replaceable(args.out / PAGE, REPORT_MARK.encode())
    with files.lock(args.out):
        return _run(args)


def _run(args: Demo) -> int:
    device = pick_device(args.device)
    data = load("digits", device=device)
    recipe = default_recipe(data.name, len(data.train), data.augment)
    training = Training(data.name, "convnet", recipe, args.seed, fingerprint=fingerprint(data))
    with training_progress("train convnet on digits") as watch:
        store = ArtifactStore(default_root(args.out))
        experiment = Experiment(training, seed=args.seed)
        original, _ = load_or_train(store, experiment, data, device, report=watch)
    done = [one for name in REQUESTS for one in _scenario(args, name, original, data, training)]
    report = write_report(args.out / PAGE, read_runs(Path(one.row["run"]) for one in done))
    if args.json:
        emit([one.row for one in done])
    else:
        _tell(done, args.out, report)
    if args.open:
        webbrowser.open(report.resolve().as_uri())
    return 0


def _scenario(
    args: Demo, name: str, original: nn.Module, data: Data, training: Training
) -> list[Done]:
    scenario = REQUESTS[name](data, args.seed)
    before, done, models = evaluate(original, scenario), [], {"original": original}
    for method_name in METHODS:
        method = preset(method_name, data.name, scenario.kind, len(data.train))
        with training_progress(f"{method_name}: forget {name}") as watch:
            outcome = unlearn(
                method, original, scenario, new_model=lambda: build("convnet", data.num_classes, data.train.shape),
                recipe=training.recipe, original=before, watch=watch,
            )  # fmt: skip
        run = runs.record(
            Experiment(training, REQUESTS[name], method, args.seed), scenario, outcome
        )
        folder = runs.save(run, outcome.model, args.out / f"{name}-{method_name}", overwrite=True)
        coverage = Coverage(outcome.processed, outcome.forget_samples)
        audit = audit_quick(
            Case(scenario, original, outcome.model, method_name, describe(REQUESTS[name]), coverage)
        )
        verdict.save(audit, folder)
        done.append(Done(runs.row(folder, run), audit.verdict))
        models[ROLES[method_name]] = outcome.model
    if name == "class":
        say("looking into the feature space ...")
        files.write_json(
            folder / RESULT, analyse(models, scenario, points=POINTS).to_dict(), indent=None
        )
    return done


def _tell(done: list[Done], out: Path, report: Path) -> None:
    columns = [
        "forget",
        "method",
        "AUS",
        *(f"{name} %" for name in runs.COLUMNS[1:]),
        "seconds",
        "quick audit",
    ]
    print_table(columns, [_cells(one) for one in done])
    rows = [one.row for one in done]
    for retrained, duck in zip(rows[1::3], rows[2::3], strict=True):
        write(
            f"{duck['scenario']}: DUCK took 1/{retrained['seconds'] / duck['seconds']:.1f} of the time of retraining."
        )
    for note in dict.fromkeys(note for row in rows[2::3] for note in row["notes"]):
        write(note)
    write(f"Report: {report}\nModels: {out}/*/{runs.WEIGHTS}")
    say(
        f"Next: `duck audit {out / 'class-duck'} --tier oracle` for a verdict, or the README for your own model and data."
    )


def _cells(one: Done) -> list[str]:
    row, scores = one.row, one.row["scores"]
    accuracies = [percent(scores[name]) for name in runs.COLUMNS[1:]]
    return [
        row["scenario"],
        row["method"],
        number(scores["aus"]),
        *accuracies,
        f"{row['seconds']:.2f}",
        one.verdict,
    ]
