"""The demonstration: train, forget, retrain, audit and report on embedded data."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from duck import files, runs
from duck.analysis.study import RESULT, analyse
from duck.artifacts import ArtifactStore, default_root
from duck.assurance import Assurance, AssureOptions, assure
from duck.audits import verdict
from duck.audits.auditing import Case, audit_oracle, audit_quick
from duck.audits.quick import Coverage
from duck.audits.verdict import DEFAULT_MODELS, Audit, Tier
from duck.display import Display
from duck.experiment import Experiment, Training
from duck.methods.base import Method
from duck.methods.ladder import ladder
from duck.methods.presets import default_recipe, preset
from duck.metrics import evaluate
from duck.options import DataOptions, model_factory
from duck.originals import load_or_train
from duck.report import REPORT_MARK, Contents, read_runs, write_report
from duck.retraining import Retraining
from duck.runtime import pick_device
from duck.scenarios import ForgetClasses, ForgetFraction, Request, describe
from duck.types import Data, Original, Scenario
from duck.unlearning import Outcome, unlearn

REQUESTS: dict[str, Request] = {"class": ForgetClasses([3]), "quarter": ForgetFraction(0.25)}
ROLES = {"original": "original", "retrained": "retrained", "duck": "unlearned"}
"""The methods, and what their models are called in the analysis."""
DATA = "noisy-digits"
"""On plain digits unseen samples are as well known as training samples: nothing to forget."""
ASSURED = "assured"
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
    tier: Tier
    """Of the audit."""
    verdict: str
    assurance: Assurance | None = None
    """What was tried, if the method was chosen by audits."""


@dataclass(frozen=True)
class Demo:
    """The runs of the demonstration and the page about them."""

    runs: list[DemoRun]
    report: Path


def run_demo(options: DemoOptions | None = None, display: Display | None = None) -> Demo:
    """Train a small net on noisy digits, make it forget, retrain, audit and report."""
    chosen = options or DemoOptions()
    files.check_replaceable(chosen.out / PAGE, REPORT_MARK.encode())
    with files.lock(chosen.out):
        return _run(chosen, display or Display())


def _run(options: DemoOptions, display: Display) -> Demo:
    device = pick_device(options.device)
    source = DataOptions(DATA)
    data = source.load().to(device)
    recipe = default_recipe(data.name, len(data.train), data.augment)
    training = source.training(data, "convnet", recipe, options.seed)
    store = ArtifactStore(default_root(options.out))
    with display.training(f"train convnet on {DATA}") as watch:
        experiment = Experiment(training, seed=options.seed)
        original, _ = load_or_train(store, experiment, data, device, report=watch)
    audited: list[DemoRun] = []
    for name, request in REQUESTS.items():
        demo = _DemoRequest(name, request, options, original, data, training, store, display)
        audited += demo.run()
    folders = [Path(run.row["run"]) for run in audited]
    return Demo(audited, write_report(options.out / PAGE, Contents(read_runs(folders))))


@dataclass
class _DemoRequest:
    """One request of the demonstration."""

    name: str
    request: Request
    options: DemoOptions
    original: nn.Module
    data: Data
    training: Training
    store: ArtifactStore
    display: Display

    def __post_init__(self) -> None:
        self.scenario = self.request(self.data, self.options.seed)
        self.before = evaluate(self.original, self.scenario)
        self.new_model = model_factory(self.training, self.data)
        self.references: list[nn.Module] = []

    def run(self) -> list[DemoRun]:
        """Run each method and audit it; a class is also forgotten with assurance."""
        outcomes = {
            name: self._unlearn(
                preset(name, self.data.name, self.scenario.kind, len(self.data.train)), name
            )
            for name in ROLES
        }
        if self.name != "class":
            return [self._store(name, outcome) for name, outcome in outcomes.items()]
        with self.display.progress("retrained models to compare with") as progress:
            self.references = self._retraining(self.scenario)(DEFAULT_MODELS, progress)
        found = [self._store(name, outcome) for name, outcome in outcomes.items()]
        self.display.message("Computing the feature space ...")
        models = {role: outcomes[name].model for name, role in ROLES.items()}
        analysis = analyse(models, self.scenario, points=POINTS).to_dict()
        files.write_json(Path(found[-1].row["run"]) / RESULT, analysis, indent=None)
        return [*found, self._run_assured()]

    def _unlearn(self, method: Method, title: str) -> Outcome:
        with self.display.training(f"{title}: forget {self.name}") as watch:
            return unlearn(
                method,
                self.original,
                self.scenario,
                new_model=self.new_model,
                recipe=self.training.recipe,
                original=self.before,
                watch=watch,
            )

    def _retraining(self, scenario: Scenario) -> Retraining:
        return Retraining(
            scenario,
            self.original,
            self.new_model,
            self.training.recipe,
            self.training,
            self.store,
        )

    def _run_assured(self) -> DemoRun:
        """Try methods until one passes the audit."""
        recipe = self.training.recipe
        assured = assure(
            Original(self.original, self.new_model, recipe),
            self.scenario,
            ladder(self.scenario, recipe),
            lambda candidate: self._unlearn(candidate.method, candidate.name),
            AssureOptions("oracle", planted=False),
            self._retraining,
            display=self.display,
        )
        method = assured.candidate.method
        stored = self._save(ASSURED, method, assured.outcome, assured.audit)
        return replace(stored, assurance=assured.assurance)

    def _store(self, name: str, outcome: Outcome) -> DemoRun:
        method = preset(name, self.data.name, self.scenario.kind, len(self.data.train))
        case = Case(
            self.scenario,
            self.original,
            outcome.model,
            name,
            describe(self.request),
            Coverage(outcome.processed, outcome.forget_samples),
            new_model=self.new_model,
        )
        audit = audit_oracle(case, self.references) if self.references else audit_quick(case)
        return self._save(name, method, outcome, audit)

    def _save(self, name: str, method: Method, outcome: Outcome, audit: Audit | None) -> DemoRun:
        experiment = Experiment(self.training, self.request, method, self.options.seed)
        run = runs.record(experiment, self.scenario, outcome)
        folder = self.options.out / f"{self.name}-{name}"
        runs.save(run, outcome.model, folder, overwrite=True)
        assert audit is not None
        verdict.save(audit, folder)
        return DemoRun(runs.row(folder, run), audit.tier, audit.verdict)
