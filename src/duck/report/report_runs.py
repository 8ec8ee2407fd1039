"""Write a report from options: read the runs, choose samples, write the page and the figures."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from duck import files
from duck.bench.results import Results
from duck.commands.stored_runs import open_run
from duck.display import Display
from duck.errors import BadInput
from duck.report import write_figures, write_report
from duck.report.bench_records import read_bench
from duck.report.plots import REPORT_MARK
from duck.report.records import Contents, read
from duck.report.results import Result
from duck.report.samples import Sample, choose_forgotten_samples
from duck.runs import check_file_writable, check_writable
from duck.runtime import pick_device


@dataclass(frozen=True)
class ReportOptions:
    """What a report shows besides the stored runs."""

    results: Path | None = None
    """Folder with *.jsonl of `duck bench`: its results join the table and the plots over all runs,
    its attacks have ROC curves, its densities of classes a figure."""
    figures: Path | None = None
    """Folder for every figure as PNG and PDF."""
    show_samples: bool = False
    """Show a few forgotten samples. Reads the data; do not keep such a page as evidence."""
    trust_model_code: bool = False
    """With --show-samples: import and call the model builder (package.module:function) that a run
    names. This executes its code."""


@dataclass(frozen=True)
class WrittenReport:
    """A report, its figures for print, and what it shows."""

    page: Path
    figures: Sequence[Path]
    contents: Contents

    @property
    def problems(self) -> list[str]:
        """What could not be read, a message each."""
        problems = (*self.contents.problems, *self.contents.file_problems)
        return [problem.message for problem in problems]


def report_runs(
    runs: Sequence[Path],
    out: Path = Path("report.html"),
    options: ReportOptions | None = None,
    display: Display | None = None,
) -> WrittenReport:
    """Write a page about stored runs, as `duck report` does; raise an error if none can be read."""
    options = options or ReportOptions()
    if not runs and not options.results:
        raise BadInput(
            "Name the runs to report on: `duck report runs/forgot -o report.html`, a folder of "
            "runs, or --results of a bench."
        )
    check_file_writable(out)
    files.check_replaceable(out, REPORT_MARK.encode())
    if options.figures is not None:
        check_writable(options.figures / "figure.png")
    contents = _read(runs, options, display or Display())
    page = write_report(out, contents)
    figures = write_figures(options.figures, contents) if options.figures else []
    return WrittenReport(page, figures, contents)


def _read(runs: Sequence[Path], options: ReportOptions, display: Display) -> Contents:
    """Return what can be read; raise an error if nothing can."""
    contents = read(runs)
    if contents.problems and not contents.runs and not contents.removals:
        raise BadInput("\n".join(problem.message for problem in contents.problems))
    if options.results:
        contents = replace(contents, bench=_read_results(options.results))
    if options.show_samples:
        with_samples = [
            replace(run, samples=_choose_samples(run.folder, options, display))
            for run in contents.runs
        ]
        contents = replace(contents, runs=with_samples)
    return contents


def _read_results(folder: Path) -> list[Result]:
    results = read_bench(Results(folder).done.values())
    if not results:
        raise BadInput(
            f"{folder} holds no results of `duck bench`: --results takes the folder of its *.jsonl."
        )
    return results


def _choose_samples(folder: Path, options: ReportOptions, display: Display) -> list[Sample]:
    device = pick_device("cpu")
    with display.progress("reading data") as progress:
        run = open_run(folder, trust_model_code=options.trust_model_code, progress=progress)
    place = run.find_original()
    original = run.load_model(place, device) if place else None
    return choose_forgotten_samples(run.scenario, original, run.load_model(folder, device))
