"""duck report: write one page about stored runs, and figures for print."""

import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from duck.cli.console import emit, progress_bar, say, write
from duck.cli.exit_codes import DONE
from duck.cli.inputs import check_output_file, parse
from duck.errors import BadInput
from duck.files import check_replaceable
from duck.printable import counted
from duck.report import (
    MAX_PAGE_BYTES,
    REPORT_MARK,
    AttackCurve,
    ClassDensities,
    ReadProblem,
    Result,
    Sample,
    StoredRemoval,
    StoredRun,
    choose_forgotten_samples,
    file_problems,
    read_bench_curves,
    read_bench_densities,
    read_bench_results,
    scan_removals,
    scan_runs,
    write_figures,
    write_report,
)
from duck.runs import check_writable
from duck.runtime import pick_device
from duck.unlearning_runs import open_run


@dataclass
class ReportFlags:
    """Write one self-contained page about stored runs: request, method, verdict and evidence.

    Many runs give a table to sort and filter, with each run below it. Bias removals have a section
    of their own. Nothing is computed again and nothing is downloaded. Runs that cannot be read are
    named, here and on the page.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of unlearned runs and of bias removals (`duck debias --out`), or folders that hold
    such folders."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The page."""
    results: Path | None = None
    """Folder with *.jsonl of `duck bench`: its results join the table and the plots over all runs,
    its attacks have ROC curves, its densities of classes a figure."""
    figures: Path | None = None
    """Folder for every figure as PNG and PDF."""
    show_samples: bool = False
    """Show a few forgotten samples. Reads the data; do not keep such a page as evidence."""
    trust_model_code: bool = False
    """With --show-samples: import and call the model builder (package.module:function) that a run
    names. Its code can do anything."""
    open: bool = False
    """Open the page in the browser."""
    json: bool = False
    """Print one JSON value to stdout."""


@dataclass(frozen=True)
class _Records:
    """What the page is about."""

    runs: list[StoredRun]
    removals: list[StoredRemoval]
    problems: list[ReadProblem]
    """Runs and removals that cannot be read."""
    results: list[Result] = field(default_factory=list)
    curves: list[AttackCurve] = field(default_factory=list)
    studies: list[ClassDensities] = field(default_factory=list)


def main(argv: list[str]) -> int:
    args = parse(ReportFlags, argv, "report")
    _check(args)
    records = _read(args)
    samples = None
    if args.show_samples:
        samples = {run.anchor: _samples(run.folder, args.trust_model_code) for run in records.runs}
    page = write_report(
        args.out,
        records.runs,
        records.results,
        samples,
        records.removals,
        records.curves,
        records.problems,
        records.studies,
    )
    figures: list[Path] = []
    if args.figures:
        figures = write_figures(
            args.figures,
            records.runs,
            records.results,
            records.removals,
            records.curves,
            records.studies,
        )
    _print_result(args, records, page, figures)
    if args.open:
        webbrowser.open(page.resolve().as_uri())
    return DONE


def _check(args: ReportFlags) -> None:
    """Raise errors that are known before anything is read."""
    if not args.runs and not args.results:
        raise BadInput(
            "Name the runs to report on: `duck report runs/forgot -o report.html`, a folder of "
            "runs, or --results of a bench."
        )
    check_output_file(args.out)
    check_replaceable(args.out, REPORT_MARK.encode())
    if args.figures is not None:
        check_writable(args.figures / "figure.png")


def _read(args: ReportFlags) -> _Records:
    """Return what can be read; raise an error if nothing can."""
    runs, run_problems = scan_runs(args.runs)
    removals, removal_problems = scan_removals(args.runs)
    by_message = {problem.message: problem for problem in (*run_problems, *removal_problems)}
    if by_message and not runs and not removals:
        raise BadInput("\n".join(by_message))
    records = _Records(runs, removals, list(by_message.values()))
    return _add_results(records, args.results) if args.results else records


def _add_results(records: _Records, folder: Path) -> _Records:
    from duck.bench.results import Results

    done = list(Results(folder).done.values())
    results = read_bench_results(done)
    curves = read_bench_curves(done)
    studies = read_bench_densities(done)
    if not results and not curves and not studies:
        raise BadInput(
            f"{folder} holds no results of `duck bench`: --results takes the folder of its *.jsonl."
        )
    return replace(records, results=results, curves=curves, studies=studies)


def _samples(folder: Path, trusted: bool) -> list[Sample]:
    device = pick_device("cpu")
    with progress_bar("reading data") as progress:
        run = open_run(folder, trust_model_code=trusted, progress=progress)
    place = run.find_original()
    original = run.load_model(place, device) if place else None
    return choose_forgotten_samples(run.scenario, original, run.load_model(folder, device))


def _print_result(
    args: ReportFlags, records: _Records, page: Path, figures: Sequence[Path]
) -> None:
    file_errors = file_problems(records.runs, records.removals)
    messages = [problem.message for problem in (*records.problems, *file_errors)]
    for message in messages:
        say(message)
    size = page.stat().st_size
    if args.json:
        result = {
            "report": str(page),
            "runs": len(records.runs),
            "removals": len(records.removals),
            "unread": messages,
            "figures": [str(file) for file in figures],
        }
        emit(result)
    else:
        write(page)
        counts = [
            counted(len(records.runs), "run"),
            counted(len(records.removals), "bias removal"),
            f"{counted(len(records.results), 'result')} of a bench",
            f"{size / 1e6:.1f} MB; {counted(len(figures), 'figure')} for print.",
        ]
        say(", ".join(counts))
    if size > MAX_PAGE_BYTES:
        say(
            f"The page is larger than {MAX_PAGE_BYTES / 1e6:.0f} MB, which is slow to open and "
            "hard to send: report on fewer runs at a time."
        )
