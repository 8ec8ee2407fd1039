"""duck pool: many models on random halves, what they say of the same samples; go on with it, merge it, look at it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBar

from duck import runs
from duck.cli.console import emit, percent, print_table, say, stderr, write
from duck.cli.exit_codes import DONE, INTERRUPTED
from duck.cli.inputs import (
    DataFlags,
    EngineFlags,
    apply_flags,
    check_model_code,
    given_flags,
    parse,
    peek,
    recipe_for_help,
)
from duck.cli.original import RequestFlags, data_flags, report_findings
from duck.errors import BadInput
from duck.experiment import Experiment, Training, fingerprint
from duck.methods.base import METHODS, Method
from duck.methods.presets import Preset, default_recipe, preset
from duck.models import MODELS
from duck.pools.build import BuildCounts, Progress, build_pool, suitable_workers
from duck.pools.files import merge
from duck.pools.plan import Design, Plan
from duck.pools.reader import Pool
from duck.runtime import pick_device
from duck.types import Data, Recipe


@dataclass
class MakePool:
    """Train the models that attacks compare with, and keep what they say of the same samples (not the models).

    Nobody to forget: shadow models on random halves of the training data. With --classes, --fraction or --ids, or --run of an unlearning:
    models on all data but the candidates plus a random half of these, which --method then unlearns; and half as many oracles on all but
    the candidates. What is in --out is kept: after a kill, Ctrl-C or --limit-minutes the same command goes on; more --models adds to it.
    Recipe flags say how the models are trained.

    duck pool merge A B --out C: puts the models of several machines together.

    duck pool show A: prints what a pool holds.
    """

    source: DataFlags
    who: RequestFlags
    recipe: Recipe
    out: Path
    """Folder of the pool."""
    models: int = 32
    """How many; an even number."""
    run: Path | None = None
    """A run of `duck train` or `duck forget`: brings data, model, recipe and, where it forgot, who, by which method, and the seed."""
    model: str = "resnet18"
    """A name from `duck list models`, or your own package.module:function."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a stored run names. Its code can do anything."""
    method: str = "duck"
    """A name from `duck list methods`."""
    preset: Preset = "tuned"
    """paper: the paper's settings; tuned: with what was found on holdout data."""
    presets: Path | None = None
    """A file of `duck tune`, on top of the presets."""
    engine: EngineFlags = field(default_factory=EngineFlags)
    """By default one worker per core, and one on a GPU."""
    together: int = 1
    """Models at once in a process, their weights stacked."""
    share: str = "1/1"
    """K/N: only the K-th of N equal parts, one for each of N machines."""
    limit_minutes: float | None = None
    """Begin no model that would not fit into so many minutes."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    json: bool = False
    """One JSON value to stdout instead of a table."""


@dataclass
class MergePools:
    """Put the models of several pools of the same fingerprint into one folder."""

    pools: Annotated[tuple[Path, ...], tyro.conf.Positional]
    out: Path
    json: bool = False
    """One JSON value to stdout instead of a table."""


@dataclass
class ShowPool:
    """Print what a pool holds."""

    pool: Annotated[Path, tyro.conf.Positional]
    json: bool = False
    """One JSON value to stdout instead of a table."""


def main(argv: list[str]) -> int:
    if argv[:1] == ["merge"]:
        merging = parse(MergePools, argv[1:], "pool merge")
        merge(merging.pools, merging.out)
        return _tell(merging.out, merging.json)
    if argv[:1] == ["show"]:
        showing = parse(ShowPool, argv[1:], "pool show")
        return _tell(showing.pool, showing.json)
    begun, shown = time.monotonic(), _default(argv)
    return _make(parse(MakePool, argv, "pool", shown), argv, shown, begun)


def _default(argv: list[str]) -> MakePool:
    run, on_cuda = (
        peek(argv, "--run"),
        torch.cuda.is_available() and peek(argv, "--device", "auto") != "cpu",
    )
    if run:
        made = runs.load(Path(run)).experiment
        recipe, model, seed, who = (
            made.training.recipe,
            made.training.model,
            made.seed,
            RequestFlags(protocol=made.protocol),
        )
        method = METHODS.name_of(made.method) if made.method else "duck"
    else:
        name, seed, who = peek(argv, "--data", "digits"), 0, RequestFlags()
        recipe, model, method = (
            recipe_for_help(name),
            "convnet" if name == "digits" else "resnet18",
            "duck",
        )
    return MakePool(
        data_flags(argv),
        who,
        replace(recipe, compile=on_cuda),
        tyro.MISSING,
        model=model,
        method=method,
        seed=seed,
    )


def _make(args: MakePool, argv: list[str], shown: MakePool, begun: float) -> int:
    share, device = _share(args.share), pick_device(args.device)
    if args.limit_minutes is not None and not args.limit_minutes >= 0:  # NaN is not
        raise BadInput(f"--limit-minutes must be 0 or more, got {args.limit_minutes}.")
    if ":" not in args.model:
        MODELS[args.model]  # unknown names are errors before the data are read
    check_model_code(
        args.model, str(args.run), args.trust_model_code or "--model" in given_flags(argv)
    )
    METHODS[args.method]
    made = runs.load(args.run).experiment if args.run else None
    data = args.source.load(split=not (made and made.training.weights))
    plan = _plan(args, argv, shown, made, data)
    if made and made.training.weights and args.recipe == shown.recipe:
        say(
            f"How the original of {args.run} was trained is not known: the pool has the default recipe; recipe flags say another."
        )
    # Reading the data counts too: the caller's clock is already running.
    limit = (
        None if args.limit_minutes is None else 60 * args.limit_minutes - (time.monotonic() - begun)
    )
    try:
        with _progress() as report:
            ending = build_pool(
                args.out, plan, data, args.models, device=device, compiled=args.recipe.compile, together=args.together,
                workers=_workers(args, device), engine=args.engine.engine, address=args.engine.address, gpus_per_worker=args.engine.gpus_per_worker, share=share, limit=limit, report=report,
            )  # fmt: skip
    except KeyboardInterrupt:
        say(f"Interrupted: the models that ended are kept in {args.out}; the same command goes on.")
        return INTERRUPTED
    return _tell(args.out, args.json, ending)


def _workers(args: MakePool, device: torch.device) -> int:
    """Return --workers, or the number that suits the engine and the device."""
    if args.engine.workers is not None:
        return args.engine.workers
    return 1 if args.engine.engine == "inline" else suitable_workers(device)


def _share(text: str) -> tuple[int, int]:
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal()):
        raise BadInput(f"--share is K/N, such as 1/2 on the first of two machines; got {text!r}.")
    return int(number), int(parts)


def _plan(
    args: MakePool, argv: list[str], shown: MakePool, made: Experiment | None, data: Data
) -> Plan:
    if made is not None and made.training.fingerprint != fingerprint(data):
        raise BadInput(
            f"The data are not those of {args.run}: the fingerprints differ. Name them with --data, --root."
        )
    who = args.who
    asked = bool(who.classes) or any(
        value is not None for value in (who.fraction, who.random_classes, who.ids)
    )
    design: Design = (
        "request" if asked or (made is not None and made.request is not None) else "shadow"
    )
    usual = default_recipe(data.name, len(data.train), data.augment, args.model)
    real = shown.recipe if made else replace(usual, compile=shown.recipe.compile)
    recipe = apply_flags(args.recipe, argv, real)
    source = args.source
    training = Training(
        data.name,
        args.model,
        recipe,
        0,
        source.image_size,
        source.mean,
        source.std,
        fingerprint(data),
    )
    if design == "shadow":
        return Plan(design, Experiment(training, seed=args.seed))
    request = args.who.request(data, made.request if made else None)
    scenario = request(data, args.seed, args.who.protocol)
    report_findings(scenario)
    earlier = made.earlier if made else ()
    method = _method(args, argv, made, data, scenario.kind)
    return Plan(
        design, Experiment(training, request, method, args.seed, args.who.protocol, earlier)
    )


def _method(
    args: MakePool, argv: list[str], made: Experiment | None, data: Data, kind: str
) -> Method:
    """That of the run, unless a flag asks for one."""
    if (
        made is not None
        and made.method is not None
        and not given_flags(argv) & {"--method", "--preset", "--presets"}
    ):
        return made.method
    return preset(args.method, data.name, kind, len(data.train), args.preset, args.presets)


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """A bar where stderr is a terminal; a line for each model that ended, everywhere."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )
    with ProgressBar(
        *columns, console=stderr, transient=True, disable=not stderr.is_terminal
    ) as bar:
        task = bar.add_task("pool", total=None, left="")

        def report(progress: Progress) -> None:
            total = progress.done + progress.left
            bar.update(task, completed=progress.done, total=total, left=_left(progress))
            if progress.job is None:
                say(f"{progress.done} of {total} models are there; {_left(progress)}")
            elif progress.about is not None:
                said = ", ".join(
                    f"{state} {_pair(row)}" for state, row in progress.about["accuracy"].items()
                )
                say(
                    f"[{progress.done}/{total}] {progress.job}: train and test accuracy {said} in {progress.about['seconds']:.1f} s; {_left(progress)}"
                )

        yield report


def _pair(row: dict[str, float | None]) -> str:
    return f"{percent(row['train'])} / {percent(row['test'])} %"


def _left(progress: Progress) -> str:
    if progress.seconds_left is None or not progress.left:
        return f"{progress.left} left"
    end = datetime.now() + timedelta(seconds=progress.seconds_left)
    return f"{progress.left} left, expected end {end:%H:%M:%S}"


def summary(pool: Pool) -> dict[str, Any]:
    """What a pool holds: how many models, whom they watch, and how good they are (mean and standard deviation over models)."""
    stacks = {"before": pool.before, "after": pool.after, "oracle": pool.oracle}
    return {
        "pool": str(pool.files.folder),
        "design": pool.design,
        "models": len(pool),
        "oracles": len(pool.oracle) if pool.oracle else 0,
        "samples": {
            str(role): int(count)
            for role, count in zip(*np.unique(pool.roles, return_counts=True), strict=True)
        },
        "accuracy": {
            state: {name: _spread(values) for name, values in stack.accuracies.items()}
            for state, stack in stacks.items()
            if stack
        },
        "seconds": sum(
            note["seconds"] for stack in (pool.before, pool.oracle) if stack for note in stack.infos
        ),
    }


def _spread(values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float | None]:
    if np.isnan(values).any():
        return {"mean": None, "std": None}
    return {
        "mean": float(values.mean()),
        "std": float(values.std(ddof=1)) if len(values) > 1 else None,
    }


def _tell(folder: Path, as_json: bool, ending: BuildCounts | None = None) -> int:
    if ending is not None and ending.left:
        say("Stopped by --limit-minutes: the same command goes on.")
    if ending is not None and not (ending.trained or ending.there):
        if as_json:
            emit({"pool": str(folder), "models": 0, **ending._asdict()})
        return DONE
    told = summary(Pool(folder))
    if as_json:
        emit({**told, **(ending._asdict() if ending else {})})
        return DONE
    watched = ", ".join(f"{count} {role}" for role, count in told["samples"].items())
    write(
        f"{told['design']} pool {folder}: {told['models']} models, {told['oracles']} oracles; watched samples: {watched}"
    )
    counts = {"before": told["models"], "after": told["models"], "oracle": told["oracles"]}
    rows = [
        [state, str(counts[state]), *(_mean(row[name]) for name in ("train", "test"))]
        for state, row in told["accuracy"].items()
    ]
    print_table(["", "n", "train % (std)", "test % (std)"], rows)
    return DONE


def _mean(value: dict[str, float | None]) -> str:
    return "-" if value["mean"] is None else f"{percent(value['mean'])} ({percent(value['std'])})"
