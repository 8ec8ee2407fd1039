"""duck pool: train the models that attacks compare with; merge and print pools."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
import tyro

from duck import runs
from duck.checks import check_model_code
from duck.cli.console import emit, format_left, job_bar, percent, print_table, say, write
from duck.cli.exit_codes import DONE, INTERRUPTED
from duck.cli.inputs import (
    DataFlags,
    EngineFlags,
    GivenFlags,
    apply_flags,
    parse,
    read_flags,
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
from duck.pools.plan import Plan
from duck.pools.reader import Pool
from duck.runtime import pick_device
from duck.types import Data, Recipe


@dataclass
class PoolFlags:
    """Train the models that attacks compare with, and store their outputs (not the models).

    Without a request: shadow models on random halves of the training data. With --classes,
    --fraction or --ids, or --run of an unlearning: models on all data but the candidates plus a
    random half of these, which --method then unlearns; and half as many oracles on all data but the
    candidates. Models in --out stay: after a kill, Ctrl-C or --limit-minutes the same command
    resumes; more --models adds to them. Recipe flags set how the models are trained. On a GPU they
    are compiled unless --no-compile is given.

    duck pool merge A B --out C: merges the pools of several machines.

    duck pool show A: prints the content of a pool.
    """

    source: DataFlags
    request: RequestFlags
    recipe: Recipe
    out: Path
    """Folder of the pool."""
    models: int = 32
    """Number of models; an even number."""
    run: Path | None = None
    """A run of `duck train` or `duck forget`: it has the data, the model, the recipe and, if it
    forgot, the request, the method and the seed."""
    model: str = "resnet18"
    """A name from `duck list models`, or your own package.module:function."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a stored run names. Its code
    can do anything."""
    method: str = "duck"
    """A name from `duck list methods`."""
    preset: Preset = "tuned"
    """paper: the settings of the paper; tuned: with what was found on holdout data."""
    presets: Path | None = None
    """A file of `duck tune`, on top of the presets."""
    engine: EngineFlags = field(default_factory=EngineFlags)
    """Without --workers: one worker for each core, and one on a GPU."""
    together: int = 1
    """Models that a worker trains at once, with stacked weights."""
    share: str = "1/1"
    """K/N: only the K-th of N equal parts, one for each of N machines."""
    limit_minutes: float | None = None
    """Start no model that would not fit into this many minutes."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    json: bool = False
    """Print one JSON value to stdout instead of a table."""


@dataclass
class MergeFlags:
    """Merge the models of several pools of the same fingerprint into one folder."""

    pools: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of pools; they stay as they are."""
    out: Path
    """Folder of the merged pool."""
    json: bool = False
    """Print one JSON value to stdout instead of a table."""


@dataclass
class ShowFlags:
    """Print the content of a pool."""

    pool: Annotated[Path, tyro.conf.Positional]
    """Folder of the pool."""
    json: bool = False
    """Print one JSON value to stdout instead of a table."""


def main(argv: list[str]) -> int:
    start = time.monotonic()
    if argv[:1] == ["merge"]:
        merged = parse(MergeFlags, argv[1:], "pool merge")
        merge(merged.pools, merged.out)
        _print_pool(merged.out, merged.json)
        return DONE
    if argv[:1] == ["show"]:
        shown = parse(ShowFlags, argv[1:], "pool show")
        _print_pool(shown.pool, shown.json)
        return DONE
    given = read_flags(argv)
    default = _default(given)
    return _build(parse(PoolFlags, argv, "pool", default), given, default.recipe, start)


def _default(given: GivenFlags) -> PoolFlags:
    name = given.get("--data") or "digits"
    default = PoolFlags(
        data_flags(given),
        RequestFlags(),
        recipe_for_help(name),
        tyro.MISSING,
        model="convnet" if name == "digits" else "resnet18",
    )
    run = given.get("--run")
    if run:
        experiment = runs.load(Path(run)).experiment
        default.request = RequestFlags(protocol=experiment.protocol)
        default.recipe = experiment.training.recipe
        default.model = experiment.training.model
        default.method = METHODS.name_of(experiment.method) if experiment.method else "duck"
        default.seed = experiment.seed
    return default


def _build(args: PoolFlags, given: GivenFlags, help_recipe: Recipe, start: float) -> int:
    """Build the pool and print it; `start` is when the command began."""
    share = _parse_share(args.share)
    device = pick_device(args.device)
    _check(args, given)
    experiment = runs.load(args.run).experiment if args.run else None
    is_foreign = experiment is not None and bool(experiment.training.weights)
    data = args.source.load(split=not is_foreign)
    if experiment is None:
        recipe = default_recipe(data.name, len(data.train), data.augment, args.model)
    else:
        recipe = help_recipe
    # Many models are worth the time of compiling, which the CPU does not gain from.
    recipe = apply_flags(args.recipe, given, replace(recipe, compile=device.type == "cuda"))
    plan = _plan(args, given, recipe, experiment, data)
    if is_foreign and args.recipe == help_recipe:
        say(
            f"The recipe of the original of {args.run} is not known: the pool is trained with the "
            "default recipe. Recipe flags set another one."
        )
    limit = None
    if args.limit_minutes is not None:
        # Reading the data counts, too.
        limit = 60 * args.limit_minutes - (time.monotonic() - start)
    try:
        with _progress() as report:
            counts = build_pool(
                args.out,
                plan,
                data,
                args.models,
                device=device,
                compiled=recipe.compile,
                together=args.together,
                workers=_workers(args.engine, device),
                engine=args.engine.engine,
                address=args.engine.address,
                gpus_per_worker=args.engine.gpus_per_worker,
                share=share,
                limit=limit,
                report=report,
            )
    except KeyboardInterrupt:
        say(
            f"Interrupted: the models that ended are stored in {args.out}. Rerun the same command "
            "to resume."
        )
        return INTERRUPTED
    _print_pool(args.out, args.json, counts)
    return DONE


def _check(args: PoolFlags, given: GivenFlags) -> None:
    """Raise errors that are known before the data are read."""
    if args.limit_minutes is not None and not args.limit_minutes >= 0:  # NaN is not
        raise BadInput(f"--limit-minutes must be 0 or more, got {args.limit_minutes}.")
    if ":" not in args.model:
        MODELS[args.model]
    is_trusted = args.trust_model_code or "--model" in given
    check_model_code(args.model, str(args.run), is_trusted)
    METHODS[args.method]


def _workers(flags: EngineFlags, device: torch.device) -> int:
    """Return --workers, or the number that suits the engine and the device."""
    if flags.workers is not None:
        return flags.workers
    return 1 if flags.engine == "inline" else suitable_workers(device)


def _parse_share(text: str) -> tuple[int, int]:
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal()):
        raise BadInput(f"--share is K/N, such as 1/2 on the first of two machines; got {text!r}.")
    return int(number), int(parts)


def _plan(
    args: PoolFlags,
    given: GivenFlags,
    recipe: Recipe,
    experiment: Experiment | None,
    data: Data,
) -> Plan:
    """Return the plan of the pool; `experiment` is that of --run."""
    if experiment is not None and experiment.training.fingerprint != fingerprint(data):
        raise BadInput(
            f"The data are not those of {args.run}: the fingerprints differ. Name them with "
            "--data, --root."
        )
    training = Training(
        data.name,
        args.model,
        recipe,
        0,
        args.source.image_size,
        args.source.mean,
        args.source.std,
        fingerprint(data),
    )
    request = experiment.request if experiment else None
    if request is None and not _has_request(args.request):
        return Plan("shadow", Experiment(training, seed=args.seed))
    request = args.request.build(data, request)
    scenario = request(data, args.seed, args.request.protocol)
    report_findings(scenario)
    earlier = experiment.earlier if experiment else ()
    method = _method(args, given, experiment, data, scenario.kind)
    return Plan(
        "request", Experiment(training, request, method, args.seed, args.request.protocol, earlier)
    )


def _has_request(flags: RequestFlags) -> bool:
    values = (flags.fraction, flags.random_classes, flags.ids)
    return bool(flags.classes) or any(value is not None for value in values)


def _method(
    args: PoolFlags, given: GivenFlags, experiment: Experiment | None, data: Data, kind: str
) -> Method:
    """Return the method of the run, unless a flag names one."""
    is_named = not given.keys().isdisjoint({"--method", "--preset", "--presets"})
    if experiment is not None and experiment.method is not None and not is_named:
        return experiment.method
    return preset(args.method, data.name, kind, len(data.train), args.preset, args.presets)


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """Show a bar, and a line for each model that ended."""
    with job_bar("pool") as bar:

        def report(state: Progress) -> None:
            total = state.done + state.left
            left = format_left(state.left, state.seconds_left)
            bar.update(left, completed=state.done, total=total)
            if state.job is None:
                say(f"{state.done} of {total} models are there; {left}")
            elif state.about is not None:
                accuracies = ", ".join(
                    f"{name} {_format_accuracies(row)}"
                    for name, row in state.about["accuracy"].items()
                )
                say(
                    f"[{state.done}/{total}] {state.job}: train and test accuracy {accuracies} in "
                    f"{state.about['seconds']:.1f} s; {left}"
                )

        yield report


def _format_accuracies(row: Mapping[str, float | None]) -> str:
    return f"{percent(row['train'])} / {percent(row['test'])} %"


def summary(pool: Pool) -> dict[str, Any]:
    """Return the number of models and samples, and the mean and deviation of the accuracies."""
    stacks = {"before": pool.before, "after": pool.after, "oracle": pool.oracle}
    roles, counts = np.unique(pool.roles, return_counts=True)
    accuracy = {}
    for state, stack in stacks.items():
        if stack:
            accuracy[state] = {name: _spread(values) for name, values in stack.accuracies.items()}
    seconds = 0.0
    for stack in (pool.before, pool.oracle):
        if stack:
            seconds += sum(info["seconds"] for info in stack.infos)
    return {
        "pool": str(pool.files.folder),
        "design": pool.design,
        "models": len(pool),
        "oracles": len(pool.oracle) if pool.oracle else 0,
        "samples": {str(role): int(count) for role, count in zip(roles, counts, strict=True)},
        "accuracy": accuracy,
        "seconds": seconds,
    }


def _spread(values: npt.NDArray[np.float64]) -> dict[str, float | None]:
    if np.isnan(values).any():
        return {"mean": None, "std": None}
    deviation = float(values.std(ddof=1)) if len(values) > 1 else None
    return {"mean": float(values.mean()), "std": deviation}


def _print_pool(folder: Path, as_json: bool, counts: BuildCounts | None = None) -> None:
    """Print the content of a pool; `counts` is how its building ended."""
    if counts is not None and counts.left:
        say("Stopped by --limit-minutes. Rerun the same command to resume.")
    is_empty = counts is not None and not (counts.trained or counts.there)
    content = {"pool": str(folder), "models": 0} if is_empty else summary(Pool(folder))
    if as_json:
        emit({**content, **(counts._asdict() if counts else {})})
    elif not is_empty:
        _print_summary(folder, content)


def _print_summary(folder: Path, content: Mapping[str, Any]) -> None:
    samples = ", ".join(f"{count} {role}" for role, count in content["samples"].items())
    models, oracles = content["models"], content["oracles"]
    write(
        f"{content['design']} pool {folder}: {models} models, {oracles} oracles; watched samples: "
        f"{samples}"
    )
    rows = []
    for state, row in content["accuracy"].items():
        count = oracles if state == "oracle" else models
        rows.append([state, str(count), _format_mean(row["train"]), _format_mean(row["test"])])
    print_table(["", "n", "train % (std)", "test % (std)"], rows)


def _format_mean(value: Mapping[str, float | None]) -> str:
    return "-" if value["mean"] is None else f"{percent(value['mean'])} ({percent(value['std'])})"
