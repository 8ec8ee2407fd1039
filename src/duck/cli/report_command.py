"""duck report: write one page about stored runs, and figures for print."""

import webbrowser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from duck.cli.console import CONSOLE, emit, say, write
from duck.cli.exit_codes import DONE
from duck.cli.parsing import parse
from duck.printable import counted
from duck.report import MAX_PAGE_BYTES
from duck.report.report_runs import ReportOptions, WrittenReport, report_runs


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
    report: ReportOptions = field(default_factory=ReportOptions)
    open: bool = False
    """Open the page in the browser."""
    json: bool = False
    """Print one JSON value to stdout."""


def main(argv: list[str]) -> int:
    args = parse(ReportFlags, argv, "report")
    written = report_runs(args.runs, args.out, args.report, CONSOLE)
    _print_result(written, args.json)
    if args.open:
        webbrowser.open(written.page.resolve().as_uri())
    return DONE


def _print_result(written: WrittenReport, as_json: bool) -> None:
    for message in written.problems:
        say(message)
    page, figures, contents = written.page, written.figures, written.contents
    size = page.stat().st_size
    if as_json:
        counts = {"runs": len(contents.runs), "removals": len(contents.removals)}
        files = {"unread": written.problems, "figures": [str(file) for file in figures]}
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
