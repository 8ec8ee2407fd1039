"""The demonstration: train, forget, retrain, audit and report on embedded data."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from duck import files, runs
from duck.assurance import Assurance, AssureOptions
from duck.audits.options import AuditOptions
from duck.audits.verdict import NO_VERDICT, Tier
from duck.commands.analyse import AnalyseOptions, analyse_runs
from duck.commands.assure import assure_run
from duck.commands.audit import audit_run
from duck.commands.forget import ForgetOptions, forget_run
from duck.commands.options import DataOptions, OriginalOptions, RunOptions
from duck.commands.train import TrainOptions, train_run
from duck.display import Display
from duck.report import REPORT_MARK, Contents, read_runs, write_report
from duck.scenarios import ForgetClasses, ForgetFraction, Request

CLASS = "class"
REQUESTS: dict[str, Request] = {CLASS: ForgetClasses([3]), "quarter": ForgetFraction(0.25)}
TIERS: dict[str, Tier] = {CLASS: "oracle", "quarter": "quick"}
METHODS = ("original", "retrained", "duck")
DATA = "noisy-digits"
"""On plain digits unseen samples are as well known as training samples: nothing to forget."""
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

    def output(self, name: str) -> RunOptions:
        """Return where a run is stored."""
        return RunOptions(self.out / name, self.seed, self.device, overwrite=True)


@dataclass(frozen=True)
class DemoRun:
    """A stored run of the demonstration."""

    folder: Path
    run: runs.Run
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
    options = options or DemoOptions()
    files.check_replaceable(options.out / PAGE, REPORT_MARK.encode())
    with files.lock(options.out):
        found = list(_run_all(options, display or Display()))
    folders = [run.folder for run in found]
    return Demo(found, write_report(options.out / PAGE, Contents(read_runs(folders))))


def _run_all(options: DemoOptions, display: Display) -> Iterator[DemoRun]:
    """Run each method for each request and audit it; a class is also forgotten with assurance."""
    training = TrainOptions(DataOptions(DATA), "convnet", output=options.output("original"))
    original = OriginalOptions(train_run(training, display).folder)
    for name, request in REQUESTS.items():
        audit_options = AuditOptions(TIERS[name], planted=False, device=options.device)
        for method in METHODS:
            output = options.output(f"{name}-{method}")
            run = forget_run(
                ForgetOptions(request, original, output=output, method=method), display
            )
            audit = audit_run(run.folder, audit_options, display).audit
            yield DemoRun(run.folder, run.run, audit.tier, audit.verdict)
    analysis = AnalyseOptions(points=POINTS, device=options.device)
    analyse_runs([options.out / f"{CLASS}-duck"], analysis, display)
    output = options.output(f"{CLASS}-assured")
    assured = assure_run(
        ForgetOptions(REQUESTS[CLASS], original, output=output),
        AssureOptions("oracle", planted=False),
        display,
    )
    run = assured.forgotten
    verdict = assured.audit.verdict if assured.audit else NO_VERDICT
    yield DemoRun(run.folder, run.run, "oracle", verdict, assured.assurance)
