"""duck bench: run a grid, go on with it, or print its table beside the paper's."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import tyro
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from duck.bench import (
    Ending,
    Format,
    Grid,
    Line,
    Only,
    Plan,
    Results,
    State,
    Workshop,
    attacker,
    device_name,
    execute,
    facts_of,
    find_grid,
    load_all,
    make_table,
    parse_only,
    plan,
    render,
)
from duck.cli.console import counting, emit, number, say, stderr
from duck.cli.exits import DONE, FAILED, INTERRUPTED
from duck.cli.inputs import parse
from duck.errors import BadInput
from duck.runtime import pick_device
from duck.types import Data


@dataclass
class Bench:
    """Run every data set x scenario x case x method x preset of a grid, or print what was found.

    Runs whose result is in --out are skipped: the same command goes on where it was stopped. Result files of several machines
    merge by lying in one folder. Exit code 1 where runs of this call failed: the others are kept, and these are tried again next time.
    """

    grid: Annotated[str, tyro.conf.Positional]
    """A name from `duck list grids`, or a .toml file."""
    table: bool = False
    """Print the table of the results in --out and run nothing."""
    only: str = ""
    """Narrow: KEY=VALUE,... with the keys dataset, scenario, case, method, preset; a key given twice allows both."""
    limit_minutes: float | None = None
    """Start no run that would not fit into so many minutes."""
    root: Path = Path("data")
    """Folder that holds the data sets."""
    download: bool = False
    """Fetch data sets that are not there, and check their md5."""
    out: Path = Path("results")
    """Folder of the result files."""
    models: Path | None = None
    """Folder that keeps originals, what methods prepare and what models say; `models` beside --out where not given."""
    keep_models: bool = False
    """Keep the weights of unlearned models in --models, too, by the ids of their experiments."""
    compile: bool = False
    """Compile retraining, which is then faster on a GPU; the lines say so. Originals are made as their recipe says."""
    pool: Path | None = None
    """Of grids that attack with LiRA: folder of the shadow models, made by `duck pool`. Other ones give other lines; with --table, only
    results that compared with these."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    format: Format = "text"
    """Of the table."""
    json: bool = False
    """One JSON value to stdout: the rows of the table (as --format json), or how the run ended."""


def main(argv: list[str]) -> int:
    args = parse(Bench, argv, "bench")
    grid = find_grid(args.grid)
    only, results = parse_only(args.only, grid), Results(args.out)
    for (name, why), count in results.broken.items():
        say(f"Passed over, {count} of the lines in {name}: {why}.")
    if args.table:
        return _print(args, grid, only, results)
    if args.limit_minutes is not None and not args.limit_minutes >= 0:  # NaN is not
        raise BadInput(f"--limit-minutes must be 0 or more, got {args.limit_minutes}.")
    return _run(args, grid, only, results)


def _print(args: Bench, grid: Grid, only: Only, results: Results) -> int:
    if not args.out.is_dir():
        say(f"There is no folder {args.out}, so there are no results: name theirs with --out.")
    if grid.attack is not None and args.pool is not None:
        grid = replace(grid, attack=attacker(grid.attack, args.pool).attack)
    print(render(make_table(grid, results, only), "json" if args.json else args.format))
    return DONE


def _run(args: Bench, grid: Grid, only: Only, results: Results) -> int:
    begun, device = time.monotonic(), pick_device(args.device)
    attack = None if grid.attack is None else attacker(grid.attack, args.pool)
    if attack is not None:
        grid = replace(grid, attack=attack.attack)
    results.check_writable()
    data = _load(args, grid, only)
    models = args.models or args.out.resolve().parent / "models"
    workshop = Workshop(data, models, device, attack, compiled=args.compile, keep_models=args.keep_models)
    todo = plan(grid, {name: facts_of(one) for name, one in data.items()}, results, only, workshop.kept.there())
    for reason in todo.skipped.values():
        say(f"Skipped: {reason}")
    if not todo.jobs and not todo.done:
        raise BadInput(f"Nothing of the grid {grid.name} can be run here.")
    if attack is not None:
        attack.check(job.experiment for job in todo.jobs if job.attack)
    # Reading the data counts too: the caller's clock is already running.
    limit = None if args.limit_minutes is None else 60 * args.limit_minutes - (time.monotonic() - begun)
    try:
        with _progress(len(todo.jobs)) as report:
            ending = execute(todo.jobs, workshop, results, grid.name, device=device_name(device), limit=limit, report=report)
    except KeyboardInterrupt:
        # Read anew: the interruption may have come between writing a line and counting it.
        done = Results(args.out).done
        kept = sum(job.id in done for job in todo.jobs)
        say(f"Interrupted: {kept} runs ended and are kept, {len(todo.jobs) - kept} are left; the same command goes on.")
        return INTERRUPTED
    _tell(args, grid, todo, ending)
    return FAILED if ending.failed else DONE


def _load(args: Bench, grid: Grid, only: Only) -> dict[str, Data]:
    wanted = [b.dataset for b in grid.blocks if b.dataset in only.get("dataset", {b.dataset})]
    with counting("reading data") as progress:
        data, missing = load_all(wanted, args.root, args.download, progress)
    for name, reason in missing.items():
        say(f"Skipped the data set {name}: {reason}")
    if not data:
        raise BadInput(f"None of the data sets {', '.join(dict.fromkeys(wanted))} is under {args.root}: nothing to run.")
    return data


def _tell(args: Bench, grid: Grid, todo: Plan, ending: Ending) -> None:
    if args.json:
        emit({"grid": grid.name, "skipped": todo.done, **ending._asdict()})
        return
    print(f"{grid.name}: {ending.ran} runs ended, {ending.failed} of them failed; {todo.done} were there before, {ending.left} are left.")
    if ending.left:
        say("Stopped by --limit-minutes: the same command goes on.")
    say(f"`duck bench --table {args.grid} --out {args.out}` prints the table.")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[State], None]]:
    """A bar where stderr is a terminal; a line for each run that ended, everywhere."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task("", total=total, left="")

        def report(state: State) -> None:
            if state.now is not None:
                bar.update(task, description=str(state.now), left=_left(state))
            if state.line is not None:
                bar.update(task, completed=state.done, left=_left(state))
                say(f"[{state.done}/{total}] {_in_short(state.line)}; {_left(state)}")

        yield report


def _left(state: State) -> str:
    if state.seconds_left is None or not state.left:
        return f"{state.left} left"
    end = datetime.now() + timedelta(seconds=state.seconds_left)
    return f"{state.left} left, expected end {end:%H:%M:%S}"


def _in_short(line: Line) -> str:
    if line["method"] is None:
        name, score = f"{line['dataset']}, original", "test accuracy " + number(line.get("scores", {}).get("test"))
    else:
        before = f"{line['attack']['name']} on " if "attack" in line else ""
        name = f"{line['dataset']}, {line['scenario']} {line['case']}, {before}{line['method']} ({line['preset']})"
        headline = {"svm": "f1"}.get(line["attack"]["name"], "auc") if "attack" in line else "aus"
        score = f"{headline.upper()} {number(line.get('scores', {}).get(headline))}"
    return f"{name}: failed: {line['error']}" if "error" in line else f"{name}: {score} in {line['seconds']:.2f} s"
