"""duck bench: run a grid of experiments, print its table, or list what is missing."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated

import tyro

from duck.bench import (
    BenchOptions,
    Planner,
    Results,
    check_claims,
    find_grids,
    grid_table,
    next_steps,
    run_grid,
)
from duck.bench.claims import render_claims
from duck.bench.columns import COLUMNS, Column
from duck.bench.formats import Format, render
from duck.bench.grids import built_in
from duck.bench.results import Result
from duck.bench.run_bench import GridRun
from duck.bench.status import Step, render_status
from duck.cli.console import CONSOLE, emit, job_bar, say
from duck.cli.exit_codes import DONE, FAILED, INTERRUPTED
from duck.cli.inputs import EngineFlags
from duck.cli.parsing import parse
from duck.display import JobProgress
from duck.errors import BadInput
from duck.printable import counted


@dataclass
class BenchFlags:
    """Run every data set x scenario x case x method x preset of a grid, or print the results.

    Runs whose result is in --out are skipped: the same command resumes the grid. Result files of
    several machines merge if they lie in one folder. Exit code 1 if runs of this call failed: the
    results of the others are stored, and the next call runs the failed ones again.

      duck bench paper/ablation --rehearse                  try a grid on a CPU in seconds
      duck bench paper/table-cr --only dataset=cifar10      run a part of it
      duck bench paper/table-cr --table                     print its table and the paper's
      duck bench --status                                   what is missing, and the time it takes
      duck bench --next 25                                  what to run in the next 25 minutes
      duck bench --claims                                   the claims of the paper, answered
    """

    grids: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names from `duck list grids`, or .toml files. --status and --next take several; without a
    name, all grids of the paper."""
    table: bool = False
    """Print the table of the results in --out and run nothing."""
    status: bool = False
    """Print how many cells are done, missing and failed, and the expected minutes, and run
    nothing."""
    next: float | None = None
    """Minutes: print the commands that fill the most important missing cells within them, and run
    nothing."""
    claims: bool = False
    """Print the claims of the DUCK paper with the answers of the results in --out, and run
    nothing."""
    bench: BenchOptions = field(default_factory=BenchOptions)
    engine: EngineFlags = field(default_factory=EngineFlags)
    """With several workers, the times of runs are marked as not comparable."""
    format: Format = "text"
    """Format of the table."""
    json: bool = False
    """Print one JSON value to stdout: the rows of the table (as --format json), or how the run
    ended."""

    @property
    def output_format(self) -> Format:
        return "json" if self.json else self.format

    @property
    def is_overview(self) -> bool:
        """Whether the results of several grids are printed."""
        return self.status or self.claims or self.next is not None


def main(argv: list[str]) -> int:
    args = parse(BenchFlags, argv, "bench")
    _check(args)
    results = Results(args.bench.results_folder)
    for (name, reason), count in results.broken.items():
        say(f"Skipped {count} of the lines in {name}: {reason}.")
    if args.is_overview or args.table:
        if not results.folder.is_dir():
            say(f"There is no folder {results.folder} with results: name theirs with --out.")
        print_part = _print_overview if args.is_overview else _print_table
        print_part(args, results)
        return DONE
    engine = args.engine.create()
    with job_bar("bench") as bar:
        run = run_grid(
            args.grids[0],
            args.bench,
            results,
            engine=engine,
            display=CONSOLE,
            report=lambda state: bar(state, _ending(state)),
        )
    if run.is_interrupted:
        ended = f"{counted(run.counts.ran, 'run')} ended"
        say(f"Interrupted: {ended}, {run.counts.left} are left. Rerun the same command to resume.")
        return INTERRUPTED
    _print_counts(args, run)
    if args.bench.rehearse and not args.json:
        _print_table(args, results)
        say("This was a rehearsal: it only checks that the grid runs. Ignore its numbers.")
    return FAILED if run.counts.failed else DONE


def _check(args: BenchFlags) -> None:
    """Raise an error for flags that cannot be combined."""
    flags = {"--next": args.next is not None, "--status": args.status, "--claims": args.claims}
    flags |= {"--table": args.table, "--rehearse": args.bench.rehearse}
    flags["--only"] = bool(args.bench.only)
    given = [flag for flag, is_given in flags.items() if is_given]
    if args.is_overview and len(given) > 1:
        raise BadInput(f"{given[0]} cannot be combined with {', '.join(given[1:])}.")
    if args.is_overview and args.output_format in ("latex", "csv"):
        raise BadInput(f"--format {args.format} is for tables; take text, markdown or json.")
    if args.claims and args.grids:
        raise BadInput(
            f"--claims takes no grid, got {args.grids[0]!r}: the claims are those of the paper."
        )
    if not args.is_overview and len(args.grids) != 1:
        action = "print" if args.table else "run"
        count = len(args.grids) or "none"
        raise BadInput(f"Name one grid to {action}, got {count}. Known: {', '.join(built_in())}.")


def _print_table(args: BenchFlags, results: Results) -> None:
    print(render(grid_table(args.grids[0], args.bench, results), args.output_format))


def _print_overview(args: BenchFlags, results: Results) -> None:
    """Print the claims of the paper, the status of grids, or what to run next."""
    form = args.output_format
    if args.claims:
        print(render_claims(check_claims(results), form))
    elif args.status:
        planner = Planner(results, args.bench.store)
        rows = planner.status(find_grids(args.grids))
        print(render_status(rows, form, planner.estimates.device))
    else:
        minutes = args.next or 0.0
        steps = next_steps(args.grids, minutes, args.bench, results)
        if form == "json":
            emit([asdict(step) for step in steps])
        else:
            _print_steps(steps, minutes)


def _print_steps(steps: Sequence[Step], minutes: float) -> None:
    for step in steps:
        unit = step.unit if step.count > 1 else step.unit[:-1]
        print(f"{step.command}  # {step.count} {unit}, about {step.minutes:g} min")
    if steps:
        say(f"About {sum(step.minutes for step in steps):.0f} of {minutes:g} minutes.")
    else:
        say(
            f"Nothing that is missing is expected to end within {minutes:g} minutes. --status "
            "shows what is missing."
        )


def _print_counts(args: BenchFlags, run: GridRun) -> None:
    counts = run.counts
    if args.json:
        emit({"grid": run.grid, "skipped": run.done, **counts._asdict()})
        return
    ended = f"{counted(counts.ran, 'run')} ended, {counts.failed} of them failed"
    print(f"{run.grid}: {ended}; {run.done} were there before, {counts.left} are left.")
    if counts.left:
        say("Stopped by --limit-minutes. Rerun the same command to resume.")
    if not args.bench.rehearse:
        say(f"`duck bench --table {args.grids[0]} --out {args.bench.out}` prints the table.")


def _ending(state: JobProgress[Result]) -> str:
    """Return the error of a run that ended, or its most important score and its time."""
    result = state.result
    if result is None:
        return ""
    if result.failed:
        return f"failed: {result.error}"
    score, column = next(iter(COLUMNS[result.measurement_name].items()))
    if result.method is None:
        score, column = "test", Column("test accuracy")
    return f"{column.title} {column.format(result.scores.get(score))} in {result.seconds:.2f} s"
