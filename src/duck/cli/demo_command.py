"""duck demo: train, forget, retrain, compare, audit and report on embedded data."""

import webbrowser
from dataclasses import asdict, dataclass, field
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
        emit([asdict(run.row) for run in demo.runs])
    else:
        _print_runs(demo, args.demo.out)
    if args.open:
        webbrowser.open(demo.report.resolve().as_uri())
    return DONE


def _print_runs(demo: Demo, out: Path) -> None:
    print_table([_cells(run) for run in demo.runs])
    plain = [run for run in demo.runs if run.assurance is None]
    rows = {(run.row.scenario, run.row.method): run.row for run in plain}
    notes: dict[str, None] = {}
    for scenario in dict.fromkeys(run.row.scenario for run in demo.runs):
        duck = rows[scenario, "duck"]
        speedup = rows[scenario, "retrained"].seconds / duck.seconds
        write(f"{scenario}: DUCK took 1/{speedup:.1f} of the time of retraining.")
        notes |= dict.fromkeys(duck.notes)
    for note in notes:
        write(note)
    for run in demo.runs:
        if run.assurance is not None:
            write(f"{run.row.scenario}, assured: {run.assurance}")
    write(f"Report: {demo.report}\nModels: {out}/*/{runs.WEIGHTS}")
    say(
        f"Next: `duck show {out / 'class-assured'}` for the assured run, or the README for your "
        "own model and data."
    )


def _cells(run: DemoRun) -> dict[str, str]:
    row = run.row
    method = row.method if run.assurance is None else f"assured: {row.method}"
    names = {"forget": row.scenario, "method": method}
    seconds = f"{row.seconds:.2f}"
    audit = {"audit": run.tier, "verdict": run.verdict}
    return {**names, **score_cells(row.scores), "seconds": seconds, **audit}
