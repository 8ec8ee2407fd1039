"""duck demo: train, forget, retrain, compare, audit and report on embedded data."""

import webbrowser
from dataclasses import dataclass, field
from pathlib import Path

from duck import runs
from duck.cli.console import CONSOLE, emit, print_table, say, score_cells, write
from duck.cli.exit_codes import DONE
from duck.cli.parsing import parse
from duck.demo import Demo, DemoOptions, DemoRun, run_demo


@dataclass
class DemoFlags:
    """Train a small net on noisy digits and make it forget the class 3, then a random quarter.

    Both are compared with retraining and audited. The class is also forgotten with assurance:
    methods are tried until one passes the audit.
    """

    demo: DemoOptions = field(default_factory=DemoOptions)
    open: bool = False
    """Open the report in the browser."""
    json: bool = False
    """Print one JSON list of rows to stdout instead of a table."""


def main(argv: list[str]) -> int:
    args = parse(DemoFlags, argv, "demo")
    demo = run_demo(args.demo, CONSOLE)
    if args.json:
        emit([runs.row(run.folder, run.run) for run in demo.runs])
    else:
        _print_runs(demo, args.demo.out)
    if args.open:
        webbrowser.open(demo.report.resolve().as_uri())
    return DONE


def _print_runs(demo: Demo, out: Path) -> None:
    print_table([_cells(run) for run in demo.runs])
    plain = [one.run for one in demo.runs if one.assurance is None]
    by_name = {(run.request_text, run.method_name): run for run in plain}
    notes: dict[str, None] = {}
    for request in dict.fromkeys(run.request_text for run in plain):
        duck = by_name[request, "duck"]
        speedup = by_name[request, "retrained"].seconds / duck.seconds
        write(f"{request}: DUCK took {100 / speedup:.0f} % of the time of retraining.")
        notes |= dict.fromkeys(duck.notes)
    for note in notes:
        write(note)
    for one in demo.runs:
        if one.assurance is not None:
            write(f"{one.run.request_text}, assured: {one.assurance}")
    write(f"Report: {demo.report}\nModels: {out}/*/{runs.WEIGHTS}")
    say(
        f"Next: `duck show {out / 'class-assured'}` for the assured run, or the README for your "
        "own model and data."
    )


def _cells(one: DemoRun) -> dict[str, str]:
    run = one.run
    method = run.method_name if one.assurance is None else f"assured: {run.method_name}"
    names = {"forget": run.request_text, "method": method}
    seconds = f"{run.seconds:.2f}"
    audit = {"audit": one.tier, "verdict": one.verdict}
    return {**names, **score_cells(run.scores), "seconds": seconds, **audit}
