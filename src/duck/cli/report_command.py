"""duck report: write one page about stored runs, and figures for print."""

import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from duck.bench.results import Results
from duck.cli.console import emit, progress_bar, say, write
from duck.cli.exit_codes import DONE
from duck.cli.parsing import check_output_file, parse
from duck.commands.stored_runs import open_run
from duck.errors import BadInput
from duck.files import check_replaceable
from duck.printable import counted
from duck.report import (
    MAX_PAGE_BYTES,
    REPORT_MARK,
    Contents,
    Sample,
    choose_forgotten_samples,
    read,
    read_bench,
    write_figures,
    write_report,
)
from duck.report.results import Result
from duck.runs import check_writable
from duck.runtime import pick_device


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


def main(argv: list[str]) -> int:
    args = parse(ReportFlags, argv, "report")
    _check(args)
    contents = _read(args)
    page = write_report(args.out, contents)
    figures = write_figures(args.figures, contents) if args.figures else []
    _print_result(args, contents, page, figures)
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


def _read(args: ReportFlags) -> Contents:
    """Return what can be read; raise an error if nothing can."""
    contents = read(args.runs)
    if contents.problems and not contents.runs and not contents.removals:
        raise BadInput("\n".join(problem.message for problem in contents.problems))
    if args.results:
        contents = replace(contents, bench=_read_results(args.results))
    if args.show_samples:
        runs = [
            replace(run, samples=_samples(run.folder, args.trust_model_code))
            for run in contents.runs
        ]
        contents = replace(contents, runs=runs)
    return contents


def _read_results(folder: Path) -> list[Result]:
    results = read_bench(Results(folder).done.values())
    if not results:
        raise BadInput(
            f"{folder} holds no results of `duck bench`: --results takes the folder of its *.jsonl."
        )
    return results


def _samples(folder: Path, trusted: bool) -> list[Sample]:
    device = pick_device("cpu")
    with progress_bar("reading data") as progress:
        run = open_run(folder, trust_model_code=trusted, progress=progress)
    place = run.find_original()
    original = run.load_model(place, device) if place else None
    return choose_forgotten_samples(run.scenario, original, run.load_model(folder, device))


def _print_result(
    args: ReportFlags, contents: Contents, page: Path, figures: Sequence[Path]
) -> None:
    messages = [problem.message for problem in (*contents.problems, *contents.file_problems)]
    for message in messages:
        say(message)
    size = page.stat().st_size
    if args.json:
        counts = {"runs": len(contents.runs), "removals": len(contents.removals)}
        files = {"unread": messages, "figures": [str(file) for file in figures]}
        emit({"report": str(page), **counts, **files})
    else:
        write(page)
        bench = sum(result.is_unlearning for result in contents.bench)
        runs = counted(len(contents.runs), "run")
        removals = counted(len(contents.removals), "bias removal")
        sizes = f"{size / 1e6:.1f} MB; {counted(len(figures), 'figure')} for print."
        say(f"{runs}, {removals}, {counted(bench, 'result')} of a bench, {sizes}")
    if size > MAX_PAGE_BYTES:
        say(
            f"The page is larger than {MAX_PAGE_BYTES / 1e6:.0f} MB, which is slow to open and "
            "hard to send: report on fewer runs at a time."
        )
