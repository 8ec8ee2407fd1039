"""duck tune: search the hyperparameters of a method on holdout data and write a preset."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from duck.artifacts import ArtifactStore, default_root
from duck.cli import inputs
from duck.cli.console import CONSOLE, emit, number, percent, print_table, say, write
from duck.cli.exit_codes import DONE, INTERRUPTED
from duck.cli.parsing import check_output_file, parse
from duck.errors import BadInput
from duck.options import DataOptions, OriginalOptions, model_factory
from duck.run_compare import original_or_trained
from duck.runtime import pick_device
from duck.scenarios import describe
from duck.search_spaces import space_of
from duck.tuning import (
    Objective,
    Search,
    Trial,
    TuneOptions,
    at_edge,
    check_preset_file,
    search_preset,
)

SCORE_COLUMNS: dict[Objective, str] = {
    "aus": "holdout AUS",
    "gap": "1 - gap to retrained",
    "memory": "1 - memory - loss",
}


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
    source: DataOptions
    output: inputs.RunFlags
    original: OriginalOptions
    request: inputs.RequestFlags
    engine: inputs.EngineFlags
    tune: TuneOptions = field(default_factory=TuneOptions)


def main(argv: list[str]) -> int:
    default = TuneFlags(tyro.MISSING, *inputs.default_flags(argv))
    args = parse(TuneFlags, argv, "tune", default)
    _check(args)
    search = _search(args)
    if not search.is_complete:
        ended = f"{len(search.trials)} of {args.tune.budget} trials"
        say(f"Interrupted after {ended}: their best is written.")
    if args.output.json:
        result = {
            "method": args.method,
            "best": search.changes,
            "preset": str(search.file),
            "trials": [asdict(trial) for trial in search.trials],
        }
        emit(result)
    else:
        _print_trials(search)
    return DONE if search.is_complete else INTERRUPTED


def _check(args: TuneFlags) -> None:
    """Raise errors that are known before the data are read."""
    space_of(args.method)
    if args.request.protocol == "paper":
        raise BadInput(
            "--protocol paper has no holdout apart from the test data that are reported: "
            "tune with --protocol holdout."
        )
    args.request.read()
    args.engine.create()
    args.tune.check(bool(args.request.classes), args.request.fraction is not None)


def _search(args: TuneFlags) -> Search:
    """Load the data and the original, and search."""
    device = pick_device(args.output.device)
    data = inputs.load_data(args.source, args.original.splits_data())
    on_device = data.to(device)
    request = args.request.build(data)
    scenarios = [
        args.original.scenario(part, on_device, seed, args.request.protocol)
        for part, seed in args.tune.requests(request, args.output.seed)
    ]
    inputs.report_findings(scenarios[0])
    file = args.output.out or Path(f"{args.method}-{data.name}-{scenarios[0].kind}.toml")
    check_output_file(file)
    check_preset_file(file, args.output.overwrite)
    original = original_or_trained(
        args.original, args.source, args.output.seed, data, device, CONSOLE
    )
    training = original.training(data, args.source)
    return search_preset(
        args.method,
        original.load(training, on_device, device),
        scenarios,
        describe(request, data.classes),
        file,
        args.tune,
        new_model=model_factory(training, on_device),
        recipe=training.recipe,
        head=original.head_name(),
        training=training,
        store=ArtifactStore(default_root()),
        engine=args.engine.create(),
        progress=CONSOLE.progress,
    )


def _print_trials(search: Search) -> None:
    trials = search.trials
    print_table([_cells(trial) for trial in trials])
    for trial in trials:
        if trial.error:
            write(f"trial {trial.number} failed: {trial.error}")
    pruned = [str(trial.number) for trial in trials if trial.pruned]
    if pruned:
        write(f"Stopped early, as they could not become the best: trials {', '.join(pruned)}.")
    edges = at_edge(search.name, trials)
    if edges:
        write(
            f"The best value of {', '.join(edges)} is at the edge of what was tried: "
            "a larger --budget looks beyond it."
        )
    changed = search.changes.items()
    listed = ", ".join(f"{name} {_format_setting(value)}" for name, value in changed)
    found = f"with {listed}" if listed else "itself"
    write(f"Best: the preset {search.options.start!r} {found}. Written to {search.file}")
    say(f"Use it: duck forget --method {search.name} --presets {search.file} ...")


def _cells(trial: Trial) -> dict[str, str]:
    settings = {name: _format_setting(value) for name, value in trial.settings.items()}
    scores = {SCORE_COLUMNS[trial.objective]: number(trial.score)}
    if trial.objective == "memory":
        scores |= {"memory": number(trial.memory), "AUS": number(trial.aus)}
    accuracies = {"kept %": percent(trial.kept), "forgotten %": percent(trial.forgotten)}
    return {"trial": str(trial.number), **settings, **scores, **accuracies}


def _format_setting(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
