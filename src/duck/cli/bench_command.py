"""duck bench: run a grid of experiments, print its table, or list what is missing."""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from duck.artifacts import default_root
from duck.bench import (
    Attacker,
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
from duck.checks import check_model_code
from duck.cli.console import emit, format_left, job_bar, number, progress_bar, say
from duck.cli.exit_codes import DONE, FAILED, INTERRUPTED
from duck.cli.inputs import EngineFlags, parse
from duck.errors import BadInput
from duck.printable import counted
from duck.runtime import pick_device
from duck.types import Data


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
    rehearse: bool = False
    """Run the grid on the embedded digits with a small net: one case of each block, in seconds.
    Results go to `rehearsal` in --out."""
    only: str = ""
    """Narrow: KEY=VALUE,... with the keys dataset, scenario, case, method, preset, model, variant,
    removed, recipe; a key given twice allows both values. Not with --status, --next or --claims."""
    limit_minutes: float | None = None
    """Start no run that would not fit into this many minutes."""
    root: Path = Path("data")
    """Folder that holds the data sets."""
    download: bool = False
    """Download data sets that are missing, and check their SHA-256."""
    out: Path = Path("results")
    """Folder of the result files."""
    models: Path | None = None
    """Folder of the artifact store: originals, preparations and predictions. Default: that of
    `duck train`, runs/.artifacts."""
    keep_models: bool = False
    """Store the weights of unlearned models in --models, too, by the ids of their experiments."""
    compile: bool = False
    """Compile retraining, which is then faster on a GPU; the results say so. Originals are trained
    as their recipe says."""
    shared_device: bool = False
    """Other work uses the device at the same time: the results say so, and tables and estimates
    leave their times out."""
    pool: Path | None = None
    """For grids that attack with LiRA: folder of the shadow models, made by `duck pool`. Results
    depend on the pool; with --table, only results with this pool are shown."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a grid of your own names.
    Its code can do anything."""
    engine: EngineFlags = field(default_factory=EngineFlags)
    """With several workers, the times of runs are marked as not comparable."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    format: Format = "text"
    """Format of the table."""
    json: bool = False
    """Print one JSON value to stdout: the rows of the table (as --format json), or how the run
    ended."""


def main(argv: list[str]) -> int:
    args = parse(BenchFlags, argv, "bench")
    _check(args)
    if args.rehearse:
        args = replace(args, out=args.out / "rehearsal")
    results = Results(args.out)
    for (name, reason), count in results.broken.items():
        say(f"Skipped {count} of the lines in {name}: {reason}.")
    if args.status or args.next is not None or args.claims:
        _print_overview(args, results)
        return DONE
    grid = find_grid(args.grids[0])
    if args.rehearse and not grid.views:
        grid = rehearsal(grid)
    only = parse_only(args.only, grid)
    if args.table:
        _print_table(args, grid, only, results)
        return DONE
    if grid.views:
        raise BadInput(
            f"{grid.name} shows the runs of {', '.join(grid.views)} and has none of its own: run "
            f"those, then print it with `duck bench {grid.name} --table`."
        )
    return _run(args, grid, only, results)


def _check(args: BenchFlags) -> None:
    """Raise an error for flags that do not go together."""
    chosen = ["next"] if args.next is not None else []
    chosen += [name for name in ("table", "status", "claims", "rehearse") if getattr(args, name)]
    overviews = [f"--{name}" for name in chosen if name in ("next", "status", "claims")]
    if overviews and len(chosen) > 1:
        others = [f"--{name}" for name in chosen if f"--{name}" != overviews[0]]
        raise BadInput(f"{overviews[0]} goes alone, without {', '.join(others)}.")
    if not overviews and len(args.grids) != 1:
        given = f"got {len(args.grids)}" if args.grids else "none was given"
        action = "print" if args.table else "run"
        raise BadInput(f"Name one grid to {action}, {given}. Known: {', '.join(built_in())}.")
    if args.claims and args.grids:
        raise BadInput(
            f"--claims takes no grid, got {args.grids[0]!r}: the claims are those of the paper."
        )
    if overviews and args.only:
        raise BadInput(f"--only narrows the runs of one grid; {overviews[0]} does not take it.")
    for flag, minutes in (("--limit-minutes", args.limit_minutes), ("--next", args.next)):
        if minutes is not None and not minutes >= 0:  # NaN is not
            raise BadInput(f"{flag} must be 0 or more, got {minutes}.")


def _warn_without_results(args: BenchFlags) -> None:
    if not args.out.is_dir():
        say(f"There is no folder {args.out}, so there are no results: name theirs with --out.")


def _print_overview(args: BenchFlags, results: Results) -> None:
    """Print the status of grids, what to run next, or the claims of the paper."""
    wanted = "json" if args.json else args.format
    if wanted in ("latex", "csv"):
        raise BadInput(f"--format {wanted} is for tables; take text, markdown or json.")
    form: Literal["text", "markdown", "json"] = "text"
    if wanted in ("markdown", "json"):
        form = wanted
    _warn_without_results(args)
    if args.claims:
        print(render_claims(check_claims(results), form))
        return
    planner = Planner(results, _models(args))
    names = args.grids or [name for name in built_in() if name.startswith("paper/")]
    grids = [find_grid(name) for name in names]
    if args.status:
        print(render_status(planner.status(grids), form, planner.estimates.device))
    else:
        _print_next(args, planner, grids, form == "json")


def _print_next(args: BenchFlags, planner: Planner, grids: Sequence[Grid], as_json: bool) -> None:
    """Print the commands that fill the most important missing cells."""
    minutes = args.next or 0.0
    folders = _folder_flags(args)
    steps = []
    for step in planner.next_steps(list(grids), minutes):
        if step.unit == "cells":
            step = replace(step, command=shlex.join([*shlex.split(step.command), *folders]))
        steps.append(step)
    if as_json:
        emit([asdict(step) for step in steps])
        return
    for step in steps:
        unit = step.unit if step.count > 1 else step.unit[:-1]
        print(f"{step.command}  # {step.count} {unit}, about {step.minutes:g} min")
    if steps:
        say(f"About {sum(step.minutes for step in steps):.0f} of {minutes:g} minutes.")
    elif not any(row.missing + row.failed for row in planner.status(list(grids))):
        say("Nothing is missing.")
    elif planner.estimates.device is None:
        name = grids[0].file or grids[0].name
        say(
            f"No run in {args.out} was measured, so nothing can be planned: run some cells first, "
            f"such as `duck bench {name}`."
        )
    else:
        say(
            f"No missing cell whose time is known fits into {minutes:g} minutes. --status shows "
            "what is missing."
        )


def _folder_flags(args: BenchFlags) -> list[str]:
    """Return the flags of the folders that differ from the default ones."""
    words: list[str] = []
    for name in ("root", "out", "models"):
        folder = getattr(args, name)
        if folder != getattr(BenchFlags(), name):
            words += [f"--{name}", str(folder)]
    return words


def _models(args: BenchFlags) -> Path:
    if args.models is not None:
        return args.models
    return args.out / "models" if args.rehearse else default_root()


def _print_table(args: BenchFlags, grid: Grid, only: Only, results: Results) -> None:
    _warn_without_results(args)
    if grid.attack is not None and args.pool is not None:
        grid = replace(grid, attack=attacker(grid.attack, args.pool).attack)
    print(render(make_table(grid, results, only), "json" if args.json else args.format))


def _run(args: BenchFlags, grid: Grid, only: Only, results: Results) -> int:
    start = time.monotonic()
    device = pick_device(args.device)
    engine = args.engine.create()
    for block in grid.blocks:
        check_model_code(block.model, grid.file or grid.name, args.trust_model_code)
    attack = _attacker(args, grid)
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
    facts = {name: facts_of(part) for name, part in data.items()}
    missing = plan(grid, facts, results, only, runner.ready(grid))
    _check_plan(grid, missing, data, attack)
    limit = None
    if args.limit_minutes is not None:
        # Reading the data counts, too.
        limit = 60 * args.limit_minutes - (time.monotonic() - start)
    try:
        with _progress(len(missing.jobs)) as report:
            counts = execute(
                missing.jobs,
                runner,
                results,
                grid.name,
                device=device_name(device),
                engine=engine,
                limit=limit,
                report=report,
            )
    except KeyboardInterrupt:
        _print_interrupted(args, missing)
        return INTERRUPTED
    _print_counts(args, grid, missing, counts)
    if args.rehearse and not args.json:
        print(render(make_table(grid, results, only), args.format))
        say(
            "This was a rehearsal: it shows that the grid runs. Its numbers say nothing about the "
            "methods."
        )
    return FAILED if counts.failed else DONE


def _attacker(args: BenchFlags, grid: Grid) -> Attacker | None:
    if grid.attack is None:
        return None
    if args.rehearse and args.pool is None and grid.attack.name == "lira":
        recipe = "--epochs {epochs} --batch-size {batch_size}".format(**grid.blocks[0].recipe)
        shadows = f"--models {grid.attack.shadows} {recipe} --out shadows"
        raise BadInput(
            "LiRA compares with shadow models: make some with `duck pool --data digits --model "
            f"convnet {shadows}` and add --pool shadows."
        )
    return attacker(grid.attack, args.pool)


def _check_plan(
    grid: Grid, missing: Plan, data: Mapping[str, Data], attack: Attacker | None
) -> None:
    """Raise an error for a plan that cannot be run, before anything is trained."""
    for reason in missing.skipped.values():
        say(f"Skipped: {reason}")
    if not missing.jobs and not missing.done:
        raise BadInput(f"Nothing of the grid {grid.name} can be run here.")
    check_requests(missing.jobs, data)
    if attack is not None:
        attack.check(job.experiment for job in missing.jobs if job.measurement)


def _load(args: BenchFlags, grid: Grid, only: Only) -> dict[str, Data]:
    names = [block.dataset for block in grid.blocks]
    wanted = [name for name in names if name in only.get("dataset", {name})]
    with progress_bar("reading data") as progress:
        data, missing = load_all(wanted, args.root, args.download, progress)
    for name, reason in missing.items():
        say(f"Skipped the data set {name}: {reason}")
    if not data:
        listed = ", ".join(dict.fromkeys(wanted))
        raise BadInput(f"None of the data sets {listed} is under {args.root}: nothing to run.")
    return data


def _print_interrupted(args: BenchFlags, missing: Plan) -> None:
    # Read again: the interruption may have come between storing a result and counting it.
    done = Results(args.out).done
    stored = sum(job.id in done for job in missing.jobs)
    ended = f"{counted(stored, 'run')} ended and {'is' if stored == 1 else 'are'} stored"
    left = len(missing.jobs) - stored
    say(f"Interrupted: {ended}, {left} are left. Rerun the same command to resume.")


def _print_counts(args: BenchFlags, grid: Grid, missing: Plan, counts: RunCounts) -> None:
    if args.json:
        emit({"grid": grid.name, "skipped": missing.done, **counts._asdict()})
        return
    ended = f"{counted(counts.ran, 'run')} ended, {counts.failed} of them failed"
    print(f"{grid.name}: {ended}; {missing.done} were there before, {counts.left} are left.")
    if counts.left:
        say("Stopped by --limit-minutes. Rerun the same command to resume.")
    if not args.rehearse:
        say(f"`duck bench --table {args.grids[0]} --out {args.out}` prints the table.")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Progress], None]]:
    """Show a bar, and a line for each run that ended."""
    with job_bar("", total) as bar:

        def report(state: Progress) -> None:
            left = format_left(state.left, state.seconds_left)
            if state.now is not None:
                bar.update(left, description=str(state.now))
            if state.line is not None:
                bar.update(left, completed=state.done)
                say(f"[{state.done}/{total}] {_in_short(state.line)}; {left}")

        yield report


HEADLINES: dict[str | None, tuple[str, str]] = {
    None: ("aus", "AUS"),
    "svm": ("f1", "F1"),
    "density": ("forget_train", "log density of the forgotten class"),
    "bias": ("right", "share of right answers"),
}
"""By attack or study, the score in a line of progress and its name; AUC for all others."""


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
