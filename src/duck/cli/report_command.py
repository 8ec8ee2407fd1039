"""duck report: one page for a reader, and figures for print, from stored runs."""

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from duck.cli.console import emit, say, write
from duck.cli.exit_codes import DONE
from duck.cli.inputs import check_output_file, parse
from duck.cli.reference_models import unlearning
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


@dataclass
class Report:
    """Write one self-contained page about stored runs: what was asked, what was done, the verdict, and the evidence.

    Many runs give a table to sort and filter, with each run below it; bias removals have a section of their own.
    Nothing is computed anew and nothing is fetched. Of several runs, those that cannot be read are named, here and on the page.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of unlearned runs and of bias removals (`duck debias --out`), or folders that hold such folders."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The page."""
    results: Path | None = None
    """Folder with *.jsonl of `duck bench`: its lines join the table and the plots over all runs,
    its attacks have ROC curves, its densities of classes a figure."""
    figures: Path | None = None
    """Folder for every figure as PNG and PDF."""
    show_samples: bool = False
    """Show a few forgotten samples. Reads the data; such a page must not be kept as evidence."""
    trust_model_code: bool = False
    """With --show-samples: import and call the model builder (package.module:function) that a run names. Its code can do anything."""
    open: bool = False
    """Open the page in the browser."""
    json: bool = False
    """One JSON value to stdout."""


def main(argv: list[str]) -> int:
    args = parse(Report, argv, "report")
    if not args.runs and not args.results:
        raise BadInput(
            "Name the runs to report on: `duck report runs/forgot -o report.html`, a folder of runs, or --results of a bench."
        )
    check_output_file(args.out)
    check_replaceable(args.out, REPORT_MARK.encode())
    if args.figures is not None:
        check_writable(args.figures / "figure.png")
    runs, removals, unread = _read(args.runs)
    samples = (
        {run.anchor: _samples(run.folder, args.trust_model_code) for run in runs}
        if args.show_samples
        else None
    )
    lines, curves, studies = _bench(args.results) if args.results else ([], [], [])
    page = write_report(args.out, runs, lines, samples, removals, curves, unread, studies)
    drawn: list[Path] = []
    if args.figures:
        drawn = write_figures(args.figures, runs, lines, removals, curves, studies)
    broken = [one.message for one in (*unread, *file_problems(runs, removals))]
    for message in broken:
        say(message)
    if args.json:
        counts = {"runs": len(runs), "removals": len(removals)}
        emit(
            {
                "report": str(page),
                **counts,
                "unread": broken,
                "figures": [str(file) for file in drawn],
            }
        )
    else:
        write(page)
        counts_shown = [
            counted(len(runs), "run"),
            counted(len(removals), "bias removal"),
            counted(len(lines), "line"),
        ]
        shown = f"{', '.join(counts_shown)} of a bench"
        say(
            f"{shown}, {page.stat().st_size / 1e6:.1f} MB; {counted(len(drawn), 'figure')} for print."
        )
    if page.stat().st_size > MAX_PAGE_BYTES:
        say(
            f"The page is larger than {MAX_PAGE_BYTES / 1e6:.0f} MB, which is slow to open and hard to send: report on fewer runs at a time."
        )
    if args.open:
        webbrowser.open(page.resolve().as_uri())
    return DONE


def _read(
    paths: tuple[Path, ...],
) -> tuple[list[StoredRun], list[StoredRemoval], list[ReadProblem]]:
    """What can be read; an error where nothing can."""
    (runs, broken), (removals, others) = scan_runs(paths), scan_removals(paths)
    unread = list({one.message: one for one in (*broken, *others)}.values())
    if unread and not runs and not removals:
        raise BadInput("\n".join(one.message for one in unread))
    return runs, removals, unread


def _samples(folder: Path, trusted: bool) -> list[Sample]:
    run, device = unlearning(folder, trusted=trusted), pick_device("cpu")
    original = run.original()
    before = run.model(original, device) if original else None
    return choose_forgotten_samples(run.scenario, before, run.model(folder, device))


def _bench(folder: Path) -> tuple[list[Result], list[AttackCurve], list[ClassDensities]]:
    from duck.bench.results import Results

    done = list(Results(folder).done.values())
    lines, curves, studies = (
        read_bench_results(done),
        read_bench_curves(done),
        read_bench_densities(done),
    )
    if not lines and not curves and not studies:
        raise BadInput(
            f"{folder} holds no results of `duck bench`: --results takes the folder of its *.jsonl."
        )
    return lines, curves, studies
