"""duck pool: train the models that attacks compare with; merge and print pools."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from duck import runs
from duck.cli.console import CONSOLE, emit, job_bar, percent, print_table, say, write
from duck.cli.exit_codes import DONE
from duck.cli.inputs import EngineFlags, RequestFlags, recipe_for_help
from duck.cli.parsing import GivenFlags, given_values, parse, read_flags
from duck.commands.options import DataOptions
from duck.commands.pool import PoolOptions, make_pool
from duck.display import JobProgress
from duck.pools.build import BuildCounts, suitable_workers
from duck.pools.files import ModelInfo, merge
from duck.pools.reader import Pool, PoolSummary, Spread, summarize
from duck.runtime import pick_device
from duck.types import Recipe


@dataclass
class PoolFlags:
    """Train the models that attacks compare with, and store their outputs (not the models).

    Without a request: shadow models on random halves of the training data. With a request (--ids,
    for example), or --run of an unlearning: models on all data but the candidates plus a
    random half of these, which --method then unlearns; and half as many oracles on all data but the
    candidates. Models in --out stay: after a kill, Ctrl-C or --limit-minutes the same command
    resumes; more --models adds to them. Recipe flags set how the models are trained. On a GPU they
    are compiled unless --no-compile is given.

    duck pool merge A B --out C: merges the pools of several machines.

    duck pool show A: prints the content of a pool.
    """

    source: DataOptions
    request: RequestFlags
    recipe: Recipe
    pool: PoolOptions
    engine: EngineFlags = field(default_factory=EngineFlags)
    """Without --workers: one worker for each core, and one on a GPU."""
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
    if argv[:1] == ["merge"]:
        merged = parse(MergeFlags, argv[1:], "pool merge")
        merge(merged.pools, merged.out)
        _print_pool(merged.out, merged.json)
        return DONE
    if argv[:1] == ["show"]:
        flags = parse(ShowFlags, argv[1:], "pool show")
        _print_pool(flags.pool, flags.json)
        return DONE
    given = read_flags(argv)
    args = parse(PoolFlags, argv, "pool", _default(given))
    engine = args.engine.create(suitable_workers(pick_device(args.pool.device)))
    with job_bar("pool") as bar:
        counts = make_pool(
            args.pool,
            args.source,
            args.request.read_optional(),
            args.request.protocol,
            given_values(args.recipe, given),
            engine=engine,
            display=CONSOLE,
            report=lambda state: bar(state, _ending(state)),
        )
    _print_pool(args.pool.out, args.json, counts)
    return DONE


def _default(given: GivenFlags) -> PoolFlags:
    """Return the flags with the protocol and recipe of --run, else with those for the data."""
    pool = PoolOptions(tyro.MISSING)
    if not given.get("--run"):
        return PoolFlags(DataOptions(), RequestFlags(), recipe_for_help(given), pool)
    experiment = runs.load(Path(given["--run"])).experiment
    request = RequestFlags(protocol=experiment.protocol)
    return PoolFlags(DataOptions(), request, experiment.training.recipe, pool)


def _ending(state: JobProgress[ModelInfo]) -> str:
    """Return the accuracies and the time of a model that ended."""
    info = state.result
    if info is None:
        return ""
    accuracies = ", ".join(
        f"{name} {percent(row['train'])} / {percent(row['test'])} %"
        for name, row in info.accuracy.items()
    )
    return f"train and test accuracy {accuracies} in {info.seconds:.1f} s"


def _print_pool(folder: Path, as_json: bool, counts: BuildCounts | None = None) -> None:
    """Print the content of a pool; `counts` is how its building ended."""
    if counts is not None and counts.left:
        say("Stopped by --limit-minutes. Rerun the same command to resume.")
    is_empty = counts is not None and not (counts.trained or counts.there)
    summary = None if is_empty else summarize(Pool(folder))
    if as_json:
        content = asdict(summary) if summary else {"pool": str(folder), "models": 0}
        emit({**content, **(counts._asdict() if counts else {})})
    elif summary:
        _print_summary(summary)


def _print_summary(pool: PoolSummary) -> None:
    samples = ", ".join(f"{count} {role}" for role, count in pool.samples.items())
    write(
        f"{pool.design} pool {pool.pool}: {pool.models} models, {pool.oracles} oracles; watched "
        f"samples: {samples}"
    )
    rows = []
    for state, row in pool.accuracy.items():
        count = pool.oracles if state == "oracle" else pool.models
        accuracies = {f"{name} % (std)": _format_mean(row[name]) for name in ("train", "test")}
        rows.append({"": state, "n": str(count), **accuracies})
    print_table(rows)


def _format_mean(value: Spread) -> str:
    return "-" if value.mean is None else f"{percent(value.mean)} ({percent(value.std)})"
