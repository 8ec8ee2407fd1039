"""duck tune: search the hyperparameters of a method on holdout data and write a preset."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
import tyro

from duck import files
from duck.artifacts import ArtifactStore, default_root
from duck.cli.compare_command import original_or_trained
from duck.cli.console import emit, number, percent, print_table, progress_bar, say, write
from duck.cli.exit_codes import DONE, INTERRUPTED
from duck.cli.inputs import DataFlags, EngineFlags, RunFlags, check_output_file, parse, read_flags
from duck.cli.original import (
    OriginalFlags,
    RequestFlags,
    data_flags,
    model_factory,
    report_findings,
)
from duck.errors import BadInput
from duck.methods.base import Method
from duck.methods.presets import Preset, preset
from duck.runtime import pick_device
from duck.scenarios import ForgetClasses, Request, describe
from duck.tuning import (
    Objective,
    Trial,
    at_edge,
    best,
    changes,
    retrain,
    space_of,
    tune,
    with_settings,
)
from duck.types import Scenario

FILE_MARK = "# The best of"
"""The first words of every file that this command writes. It replaces no other file."""
SCORE_COLUMNS: dict[Objective, str] = {"aus": "holdout AUS", "gap": "1 - gap to retrained"}


@dataclass
class TuneFlags:
    """Search the hyperparameters of a method on holdout data and write the best as a preset.

    Test data are not used. Every trial is printed; the first is the preset of --start. A range is
    widened if the best value lies at its edge. With --each or --draws, --engine and --workers run
    the scenarios of a trial at the same time; the trials stay the same. Use the file with
    --presets in forget and compare.
    """

    method: Annotated[str, tyro.conf.Positional]
    """A name from `duck list methods`."""
    source: DataFlags
    output: RunFlags
    original: OriginalFlags
    request: RequestFlags
    engine: EngineFlags
    budget: int = 20
    """Number of trials. The same number for every method makes a fair comparison."""
    start: Preset = "tuned"
    """The preset that the search starts from; what is not searched keeps its values. tuned: what
    forget and compare use without a file."""
    each: bool = False
    """Run a trial on each of the --classes alone and take the mean: what suits one class may not
    suit another."""
    draws: int = 1
    """With --fraction: run a trial on this many random fractions and take the mean."""
    objective: Literal["auto", "aus", "gap"] = "auto"
    """What is maximised on holdout data. aus: the score AUS. gap: 1 minus the differences to a
    retrained model in holdout accuracy, forget accuracy and confidence AUC; the retrained models
    are trained first. auto: gap for single samples, for which AUS rewards doing nothing, and aus
    for classes."""


@dataclass(frozen=True, eq=False)
class _Search:
    """A search, and where its result is written."""

    args: TuneFlags
    request: str
    """The request in words."""
    scenario: Scenario
    """The first of the scenarios."""
    method: Method
    file: Path

    def changes(self, trials: Sequence[Trial]) -> dict[str, Any]:
        """Return the settings of the best trial that differ from those of --start."""
        return changes(self.method, best(trials))


def main(argv: list[str]) -> int:
    source = data_flags(read_flags(argv))
    flags = source, RunFlags(), OriginalFlags(), RequestFlags(), EngineFlags()
    args = parse(TuneFlags, argv, "tune", TuneFlags(tyro.MISSING, *flags))
    _check(args)
    trials: list[Trial] = []
    search, is_complete = _run(args, trials)
    _write_preset(search, trials)
    if args.output.json:
        result = {
            "method": args.method,
            "best": search.changes(trials),
            "preset": str(search.file),
            "trials": [asdict(trial) for trial in trials],
        }
        emit(result)
    else:
        _print_trials(search, trials)
    return DONE if is_complete else INTERRUPTED


def _check(args: TuneFlags) -> None:
    """Raise errors that are known before the data are read."""
    space_of(args.method)
    if args.request.protocol == "paper":
        raise BadInput(
            "--protocol paper has no holdout apart from the test data that are reported: "
            "tune with --protocol holdout."
        )
    args.request.check()
    args.engine.create()
    if args.each and not args.request.classes:
        raise BadInput(
            "--each takes the --classes one at a time; for a --fraction there is --draws."
        )
    if args.each and args.draws != 1:
        raise BadInput("--draws needs --fraction: a class can be drawn only once.")
    if args.draws != 1 and (args.draws < 1 or args.request.fraction is None):
        raise BadInput(
            "--draws is a number of random fractions, at least 1, and needs --fraction; "
            f"got {args.draws}."
        )


def _run(args: TuneFlags, trials: list[Trial]) -> tuple[_Search, bool]:
    """Append the trials as they end. Return the search, and whether it was not interrupted."""
    device = pick_device(args.output.device)
    data = args.source.load(split=args.original.splits_data())
    on_device = data.to(device)
    request = args.request.build(data)
    scenarios = [
        args.original.scenario(part, on_device, seed, args.request.protocol)
        for part, seed in _parts(args, request)
    ]
    kind = scenarios[0].kind
    report_findings(scenarios[0])
    file = _output_file(args, data.name, kind)
    original = original_or_trained(args.original, args.source, args.output.seed, data, device)
    training = original.training(data, args.source)
    method = preset(args.method, data.name, kind, len(data.train), args.start)
    search = _Search(args, describe(request, data.classes), scenarios[0], method, file)
    model = original.load(training, on_device, device)
    options: dict[str, Any] = {
        "new_model": model_factory(training, on_device),
        "recipe": training.recipe,
        "engine": args.engine.create(),
    }
    retrained = None
    if _objective(args, kind) == "gap":
        with progress_bar("retrained models") as progress:
            store = ArtifactStore(default_root())
            retrained = retrain(
                model, scenarios, **options, training=training, store=store, report=progress
            )
    options.update(retrained=retrained, head=original.head_name())
    try:
        with progress_bar(f"tune {args.method}") as progress:
            for trial in tune(method, model, scenarios, args.budget, **options):
                trials.append(trial)
                progress(trial.number + 1, args.budget)
    except KeyboardInterrupt:
        if not trials:
            raise
        say(f"Interrupted after {len(trials)} of {args.budget} trials: their best is written.")
        return search, False
    return search, True


def _objective(args: TuneFlags, kind: str) -> Objective:
    if args.objective == "auto":
        return "gap" if kind == "samples" else "aus"
    if args.objective == "gap" and kind == "class":
        raise BadInput(
            "--objective gap is for single samples: for whole classes the objective is AUS."
        )
    return args.objective


def _parts(args: TuneFlags, request: Request) -> list[tuple[Request, int]]:
    """Return the requests that a trial runs on, with their seeds."""
    seed = args.output.seed
    if args.each and isinstance(request, ForgetClasses):
        return [(ForgetClasses([name]), seed) for name in request.classes]
    return [(request, seed + draw) for draw in range(args.draws)]


def _output_file(args: TuneFlags, data: str, kind: str) -> Path:
    """Return the file of the preset; raise an error if it must not be written."""
    file = args.output.out or Path(f"{args.method}-{data}-{kind}.toml")
    check_output_file(file)
    if file.exists() and not args.output.overwrite:
        raise BadInput(f"{file} exists: choose another --out, or --overwrite it.")
    files.check_replaceable(file, FILE_MARK.encode())
    return file


def _write_preset(search: _Search, trials: Sequence[Trial]) -> None:
    """Write every setting: on top of any preset, the file gives what the best trial ran with."""
    args = search.args
    found = with_settings(search.method, best(trials).settings)
    settings = asdict(found)  # type: ignore[call-overload]
    source = {
        "from": "search",
        "objective": best(trials).objective,
        "trials": len(trials),
        "date": datetime.now(UTC).date().isoformat(),
    }
    preset = {name: value for name, value in settings.items() if value is not None}
    preset["source"] = source
    request = search.request
    if args.each:
        request += ", each alone"
    if args.draws > 1:
        request += f", {args.draws} draws"
    data = search.scenario.data.name
    place = f"the holdout of {data}: {request}; seed {search.scenario.seed}"
    note = f"{FILE_MARK} {len(trials)} trials on {place}, from the preset {args.start!r}.\n"
    tables = {args.method: {data: {"tuned": {search.scenario.kind: preset}}}}
    files.write_text(search.file, note + tomli_w.dumps(tables))


def _print_trials(search: _Search, trials: Sequence[Trial]) -> None:
    args = search.args
    names = list(trials[0].settings)
    columns = ["trial", *names, SCORE_COLUMNS[trials[0].objective], "kept %", "forgotten %"]
    print_table(columns, [_cells(trial, names) for trial in trials])
    for trial in trials:
        if trial.error:
            write(f"trial {trial.number} failed: {trial.error}")
    pruned = [str(trial.number) for trial in trials if trial.pruned]
    if pruned:
        write(f"Stopped early, as they could not become the best: trials {', '.join(pruned)}.")
    edges = at_edge(args.method, trials)
    if edges:
        write(
            f"The best value of {', '.join(edges)} is at the edge of what was tried: "
            "a larger --budget looks beyond it."
        )
    changed = search.changes(trials).items()
    listed = ", ".join(f"{name} {_format_setting(value)}" for name, value in changed)
    found = f"with {listed}" if listed else "itself"
    write(f"Best: the preset {args.start!r} {found}. Written to {search.file}")
    say(f"Use it: duck forget --method {args.method} --presets {search.file} ...")


def _cells(trial: Trial, names: Sequence[str]) -> list[str]:
    settings = [_format_setting(trial.settings[name]) for name in names]
    scores = [number(trial.score), percent(trial.kept), percent(trial.forgotten)]
    return [str(trial.number), *settings, *scores]


def _format_setting(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
