"""duck bench: run a grid, resume it, print its table beside the paper's, or say what is missing."""

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBar

from duck.artifacts import default_root
from duck.bench import (
    Format,
    Grid,
    Only,
    Plan,
    Planner,
    Progress,
    Result,
    Results,
    RunCounts,
    Runner,
    attacker,
    built_in,
    check_claims,
    check_requests,
    check_study,
    device_name,
    execute,
    facts_of,
    find_grid,
    load_all,
    make_table,
    parse_only,
    plan,
    rehearsal,
    render,
    render_claims,
    render_status,
)
from duck.cli.console import emit, number, progress_bar, say, stderr
from duck.cli.exit_codes import DONE, FAILED, INTERRUPTED
from duck.cli.inputs import EngineFlags, check_model_code, parse
from duck.errors import BadInput
from duck.printable import counted
from duck.runtime import pick_device
from duck.types import Data


@dataclass
class Bench:
    """Run every data set x scenario x case x method x preset of a grid, or print what was found.

    Runs whose result is in --out are skipped: the same command goes on where it was stopped. Result files of several machines
    merge by lying in one folder. Exit code 1 where runs of this call failed: the others are kept, and these are tried again next time.

      duck bench paper/ablation --rehearse                  try a grid on a CPU in seconds
      duck bench paper/table-cr --only dataset=cifar10      run a part of it
      duck bench paper/table-cr --table                     print its table beside the paper's
      duck bench --status                                   what is missing, and how long it will take
      duck bench --next 25                                  what to run in the next 25 minutes
      duck bench --claims                                   the claims of the paper, answered
    """

    grids: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names from `duck list grids`, or .toml files. --status and --next take several, and all of the paper's where none is named."""
    table: bool = False
    """Print the table of the results in --out and run nothing."""
    status: bool = False
    """Print how many cells are done, missing and failed, and the expected minutes, and run nothing."""
    next: float | None = None
    """Minutes: print the commands that fill the most important missing cells within them, and run nothing."""
    claims: bool = False
    """Print the claims of the DUCK paper with the answers of the results in --out, and run nothing."""
    rehearse: bool = False
    """Run the grid on the embedded digits with a small net: one case of each block, in seconds. Results go to `rehearsal` in --out."""
    only: str = ""
    """Narrow: KEY=VALUE,... with the keys dataset, scenario, case, method, preset, model, variant, removed, recipe; a key given twice
    allows both values. Not with --status, --next and --claims."""
    limit_minutes: float | None = None
    """Start no run that would not fit into so many minutes."""
    root: Path = Path("data")
    """Folder that holds the data sets."""
    download: bool = False
    """Fetch data sets that are not there, and check their SHA-256."""
    out: Path = Path("results")
    """Folder of the result files."""
    models: Path | None = None
    """Folder of the artifact store: originals, preparations and predictions. Default: that of
    `duck train`, runs/.artifacts."""
    keep_models: bool = False
    """Store the weights of unlearned models in --models, too, by the ids of their experiments."""
    compile: bool = False
    """Compile retraining, which is then faster on a GPU; the lines say so. Originals are made as their recipe says."""
    shared_device: bool = False
    """Other work uses the device meanwhile: the lines say so, and tables and estimates leave their times out."""
    pool: Path | None = None
    """Of grids that attack with LiRA: folder of the shadow models, made by `duck pool`. Other ones give other lines; with --table, only
    results that compared with these."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a grid of your own names. Its code can do anything."""
    engine: EngineFlags = field(default_factory=EngineFlags)
    """With several workers, the times of runs are marked as not comparable."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    format: Format = "text"
    """Of the table."""
    json: bool = False
    """One JSON value to stdout: the rows of the table (as --format json), or how the run ended."""


def main(argv: list[str]) -> int:
    args = parse(Bench, argv, "bench")
    _check(args)
    if args.rehearse:
        args = replace(args, out=args.out / "rehearsal")
    results = Results(args.out)
    for (name, why), count in results.broken.items():
        say(f"Passed over, {count} of the lines in {name}: {why}.")
    if args.status or args.next is not None or args.claims:
        return _print_overview(args, results)
    grid = find_grid(args.grids[0])
    grid = rehearsal(grid) if args.rehearse and not grid.views else grid
    only = parse_only(args.only, grid)
    if args.table:
        return _print(args, grid, only, results)
    if grid.views:
        raise BadInput(
            f"{grid.name} shows the runs of {', '.join(grid.views)} and has none of its own: run those, "
            f"then print it with `duck bench {grid.name} --table`."
        )
    return _run(args, grid, only, results)


def _check(args: Bench) -> None:
    """Raise an error for flags that do not go together."""
    asked = [name for name in ("table", "status", "claims", "rehearse") if getattr(args, name)]
    overviews = [*(["next"] if args.next is not None else []), *asked]
    alone = [f"--{name}" for name in overviews if name in ("next", "status", "claims")]
    if alone and len(overviews) > 1:
        others = [f"--{name}" for name in overviews if f"--{name}" != alone[0]]
        raise BadInput(f"{alone[0]} goes alone, without {', '.join(others)}.")
    if not alone and len(args.grids) != 1:
        named = f"got {len(args.grids)}" if args.grids else "none was given"
        what = "print" if args.table else "run"
        raise BadInput(f"Name one grid to {what}, {named}. Known: {', '.join(built_in())}.")
    if args.claims and args.grids:
        raise BadInput(
            f"--claims takes no grid, got {args.grids[0]!r}: the claims are those of the paper."
        )
    if alone and args.only:
        raise BadInput(f"--only narrows the runs of one grid; {alone[0]} does not take it.")
    for flag, minutes in (("--limit-minutes", args.limit_minutes), ("--next", args.next)):
        if minutes is not None and not minutes >= 0:  # NaN is not
            raise BadInput(f"{flag} must be 0 or more, got {minutes}.")


def _print_overview(args: Bench, results: Results) -> int:
    """Print the status of grids, what to run next, or the claims of the paper."""
    form = "json" if args.json else args.format
    if form in ("latex", "csv"):
        raise BadInput(f"--format {form} is for tables; take text, markdown or json.")
    shown: Literal["text", "markdown", "json"] = (
        "json" if form == "json" else "markdown" if form == "markdown" else "text"
    )
    if not args.out.is_dir():
        say(f"There is no folder {args.out}, so there are no results: name theirs with --out.")
    if args.claims:
        print(render_claims(check_claims(results), shown))
        return DONE
    planner = Planner(results, _models(args))
    names = args.grids or [name for name in built_in() if name.startswith("paper/")]
    grids = [find_grid(name) for name in names]
    if args.status:
        print(render_status(planner.status(grids), shown, planner.estimates.device))
        return DONE
    return _print_next(args, planner, grids, shown == "json")


def _print_next(args: Bench, planner: Planner, grids: list[Grid], as_json: bool) -> int:
    """Print the commands that fill the most important missing cells, with the folders of this call."""
    usual = Bench()
    folders = {"--root": args.root, "--out": args.out, "--models": args.models}
    known = {"--root": usual.root, "--out": usual.out, "--models": usual.models}
    words = [
        word
        for flag, folder in folders.items()
        if folder != known[flag]
        for word in (flag, str(folder))
    ]
    found = planner.next_steps(grids, args.next or 0.0)
    steps = [
        replace(step, command=shlex.join([*shlex.split(step.command), *words]))
        if step.unit == "cells"
        else step
        for step in found
    ]
    if as_json:
        emit([asdict(step) for step in steps])
        return DONE
    for step in steps:
        print(
            f"{step.command}  # {step.count} {step.unit if step.count > 1 else step.unit[:-1]}, about {step.minutes:g} min"
        )
    if steps:
        say(f"About {sum(step.minutes for step in steps):.0f} of {args.next:g} minutes.")
    elif not any(row.missing + row.failed for row in planner.status(grids)):
        say("Nothing is missing.")
    elif planner.estimates.device is None:
        name = grids[0].file or grids[0].name
        say(
            f"No run in {args.out} was measured, so nothing can be planned: run some cells first, such as `duck bench {name}`."
        )
    else:
        say(
            f"No missing cell whose time is known fits into {args.next:g} minutes. --status shows what is missing."
        )
    return DONE


def _models(args: Bench) -> Path:
    if args.models is not None:
        return args.models
    return args.out / "models" if args.rehearse else default_root()


def _print(args: Bench, grid: Grid, only: Only, results: Results) -> int:
    if not args.out.is_dir():
        say(f"There is no folder {args.out}, so there are no results: name theirs with --out.")
    if grid.attack is not None and args.pool is not None:
        grid = replace(grid, attack=attacker(grid.attack, args.pool).attack)
    print(render(make_table(grid, results, only), "json" if args.json else args.format))
    return DONE


def _run(args: Bench, grid: Grid, only: Only, results: Results) -> int:
    begun, device = time.monotonic(), pick_device(args.device)
    engine = args.engine.create()
    for block in grid.blocks:
        check_model_code(block.model, grid.file or grid.name, args.trust_model_code)
    if (
        args.rehearse
        and args.pool is None
        and grid.attack is not None
        and grid.attack.name == "lira"
    ):
        recipe = "--epochs {epochs} --batch-size {batch_size}".format(**grid.blocks[0].recipe)
        command = f"duck pool --data digits --model convnet --models {grid.attack.shadows} {recipe} --out shadows"
        raise BadInput(
            f"LiRA compares with shadow models: make some with `{command}` and add --pool shadows."
        )
    attack = None if grid.attack is None else attacker(grid.attack, args.pool)
    if attack is not None:
        grid = replace(grid, attack=attack.attack)
    if grid.study is not None:
        check_study(grid.study)
    results.check_writable()
    data = _load(args, grid, only)
    runner = Runner(
        data,
        _models(args),
        device,
        attack,
        compiled=args.compile,
        keep_models=args.keep_models,
        alone=not args.shared_device and engine.workers == 1,
    )
    todo = plan(
        grid,
        {name: facts_of(one) for name, one in data.items()},
        results,
        only,
        runner.ready(grid),
    )
    for reason in todo.skipped.values():
        say(f"Skipped: {reason}")
    if not todo.jobs and not todo.done:
        raise BadInput(f"Nothing of the grid {grid.name} can be run here.")
    check_requests(todo.jobs, data)
    if attack is not None:
        attack.check(job.experiment for job in todo.jobs if job.measurement)
    # Reading the data counts too: the caller's clock is already running.
    limit = (
        None if args.limit_minutes is None else 60 * args.limit_minutes - (time.monotonic() - begun)
    )
    try:
        with _progress(len(todo.jobs)) as report:
            ending = execute(
                todo.jobs,
                runner,
                results,
                grid.name,
                device=device_name(device),
                engine=engine,
                limit=limit,
                report=report,
            )
    except KeyboardInterrupt:
        # Read anew: the interruption may have come between writing a line and counting it.
        done = Results(args.out).done
        kept = sum(job.id in done for job in todo.jobs)
        ended = f"{counted(kept, 'run')} ended and {'is' if kept == 1 else 'are'} kept"
        say(f"Interrupted: {ended}, {len(todo.jobs) - kept} are left; the same command goes on.")
        return INTERRUPTED
    _tell(args, grid, todo, ending)
    if args.rehearse and not args.json:
        print(render(make_table(grid, results, only), args.format))
        say(
            "This was a rehearsal: it shows that the grid runs. Its numbers say nothing about the methods."
        )
    return FAILED if ending.failed else DONE


def _load(args: Bench, grid: Grid, only: Only) -> dict[str, Data]:
    wanted = [b.dataset for b in grid.blocks if b.dataset in only.get("dataset", {b.dataset})]
    with progress_bar("reading data") as progress:
        data, missing = load_all(wanted, args.root, args.download, progress)
    for name, reason in missing.items():
        say(f"Skipped the data set {name}: {reason}")
    if not data:
        raise BadInput(
            f"None of the data sets {', '.join(dict.fromkeys(wanted))} is under {args.root}: nothing to run."
        )
    return data


def _tell(args: Bench, grid: Grid, todo: Plan, ending: RunCounts) -> None:
    if args.json:
        emit({"grid": grid.name, "skipped": todo.done, **ending._asdict()})
        return
    ended = f"{counted(ending.ran, 'run')} ended, {ending.failed} of them failed"
    print(f"{grid.name}: {ended}; {todo.done} were there before, {ending.left} are left.")
    if ending.left:
        say("Stopped by --limit-minutes: the same command goes on.")
    if not args.rehearse:
        say(f"`duck bench --table {args.grids[0]} --out {args.out}` prints the table.")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Progress], None]]:
    """A bar where stderr is a terminal; a line for each run that ended, everywhere."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with ProgressBar(
        *columns, console=stderr, transient=True, disable=not stderr.is_terminal
    ) as bar:
        task = bar.add_task("", total=total, left="")

        def report(state: Progress) -> None:
            if state.now is not None:
                bar.update(task, description=str(state.now), left=_left(state))
            if state.line is not None:
                bar.update(task, completed=state.done, left=_left(state))
                say(f"[{state.done}/{total}] {_in_short(state.line)}; {_left(state)}")

        yield report


def _left(state: Progress) -> str:
    if state.seconds_left is None or not state.left:
        return f"{state.left} left"
    end = datetime.now() + timedelta(seconds=state.seconds_left)
    return f"{state.left} left, expected end {end:%H:%M:%S}"


HEADLINES: dict[str | None, tuple[str, str]] = {
    None: ("aus", "AUS"),
    "svm": ("f1", "F1"),
    "density": ("forget_train", "log density of the forgotten class"),
    "bias": ("right", "share of right answers"),
}
"""By attack or study, the score that a line of progress shows and its name; AUC where none is given."""


def _in_short(line: Result) -> str:
    if line.method is None:
        name, score = (
            f"{line.dataset}, original",
            "test accuracy " + number(line.scores.get("test")),
        )
    else:
        settings = line.measurement
        before = f"{settings['name']} of " if settings else ""
        method = f"{line.method}, {line.variant}" if line.variant else line.method
        request = line.stored.request
        case = f"{line.scenario} {line.case}"
        if request is not None and request.name == "random-classes":
            case = f"{request.count} random classes, seed {line.case}"
        name = f"{line.dataset}, {case}, {before}{method} ({line.preset})"
        headline, words = HEADLINES.get(line.measurement_name, ("auc", "AUC"))
        score = f"{words} {number(line.scores.get(headline))}"
    return (
        f"{name}: failed: {line.error}"
        if line.failed
        else f"{name}: {score} in {line.seconds:.2f} s"
    )
