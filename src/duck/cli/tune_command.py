"""duck tune: search the hyperparameters of a method on holdout data and write a preset."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import tyro

from duck.cli import inputs
from duck.cli.console import CONSOLE, emit, number, percent, print_table, say, write
from duck.cli.exit_codes import DONE, FAILED, INTERRUPTED
from duck.cli.parsing import parse
from duck.commands.tune import Search, TuneOptions, tune_method
from duck.tuning import Objective, Trial, at_edge

SCORE_COLUMNS: dict[Objective, str] = {
    "aus": "holdout AUS",
    "gap": "1 - gap to retrained",
    "memory": "1 - memory - loss",
}


@dataclass
class TuneFlags(inputs.SharedFlags):
    """Search the hyperparameters of a method on holdout data and write the best as a preset.

    Test data are not used. Every trial is printed; the first is the preset of --start. A range is
    widened if the best value lies at its edge. With --each or --draws, --engine and --workers run
    the scenarios of a trial at the same time; the trials stay the same. Use the file in forget and
    compare, with --presets.
    """

    engine: inputs.EngineFlags
    method: Annotated[str, tyro.conf.Positional]
    """A name from `duck list methods`."""
    tune: TuneOptions = field(default_factory=TuneOptions)


def main(argv: list[str]) -> int:
    args = parse(TuneFlags, argv, "tune")
    search = tune_method(
        args.method, args.forget_options(), args.tune, args.engine.create(), CONSOLE
    )
    if not search.is_complete:
        ended = f"{len(search.trials)} of {args.tune.budget} trials"
        written = "nothing" if search.failure else "their best"
        say(f"Interrupted after {ended}: {written} is written.")
    if args.output.json:
        result = {
            "method": args.method,
            "best": None if search.failure else search.changes,
            "preset": None if search.failure else str(search.file),
            "trials": [asdict(trial) for trial in search.trials],
        }
        emit(result)
    else:
        _print_trials(search)
    if not search.is_complete:
        return INTERRUPTED
    return FAILED if search.failure else DONE


def _print_trials(search: Search) -> None:
    trials = search.trials
    print_table([_cells(trial) for trial in trials])
    for trial in trials:
        if trial.error:
            write(f"trial {trial.number} failed: {trial.error}")
    pruned = [str(trial.number) for trial in trials if trial.pruned]
    if pruned:
        write(f"Stopped early, as they could not become the best: trials {', '.join(pruned)}.")
    if search.failure:
        say(f"Every trial failed, so no preset is written. The last one: {search.failure}")
        return
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
