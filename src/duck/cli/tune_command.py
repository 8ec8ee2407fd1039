"""duck tune: search a method's settings on holdout data and write what was found as a preset."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
import tyro
from torch import nn

from duck import files
from duck.artifacts import ArtifactStore, default_root
from duck.audits.retraining import Retraining
from duck.cli.compare_command import original_or_trained
from duck.cli.console import counting, emit, number, percent, say, table, write
from duck.cli.exit_codes import DONE, INTERRUPTED
from duck.cli.inputs import DataFlags, RunFlags, check_file, parse
from duck.cli.original import OriginalFlags, RequestFlags, data_flags, factory, report_findings
from duck.errors import BadInput
from duck.experiment import Training
from duck.methods.base import Method
from duck.methods.presets import Preset, preset
from duck.runtime import pick_device
from duck.scenarios import ForgetClasses, Request, describe
from duck.tuning import Objective, Trial, at_edge, best, changes, space_of, tune, with_settings
from duck.types import Scenario

MARK = "# The best of"
"""The first words of every file that is written here: others are not replaced."""


@dataclass
class Tune:
    """Search a method's settings on holdout data, report every trial, and write the best as a preset.

    Test data are never looked at. The first trial is the preset of --start. A range is widened where the best value lies at its edge.
    Use the found file with --presets in forget and compare.
    """

    method: Annotated[str, tyro.conf.Positional]
    """A name from `duck list methods`."""
    source: DataFlags
    output: RunFlags
    original: OriginalFlags
    who: RequestFlags
    budget: int = 20
    """Trials; the same for every method makes a fair comparison."""
    start: Preset = "tuned"
    """The preset that the search starts from; what is not searched keeps its values. tuned: what forget and compare take without a file."""
    each: bool = False
    """Run a trial on each of the --classes alone and take the mean: what suits one class may not suit another."""
    draws: int = 1
    """Of a --fraction: run a trial on so many random shares and take the mean."""
    objective: Literal["auto", "aus", "gap"] = "auto"
    """What is maximised on holdout data. aus: the score AUS. gap: 1 minus the differences to a retrained model in holdout accuracy, forget
    accuracy and confidence AUC; the retrained models are trained first. auto: gap for single samples, for which AUS rewards doing
    nothing, and aus for classes."""


def main(argv: list[str]) -> int:
    default = Tune(tyro.MISSING, data_flags(argv), RunFlags(), OriginalFlags(), RequestFlags())
    args = parse(Tune, argv, "tune", default)
    space_of(args.method)
    if args.who.protocol == "paper":
        raise BadInput(
            "--protocol paper has no holdout apart from the test data that are reported: tune with --protocol holdout."
        )
    args.who.check()
    _check_cases(args)
    device = pick_device(args.output.device)
    data = args.source.load(split=args.original.splits_data())
    request, moved = args.who.request(data), data.to(device)
    cases = _cases(args, request)
    scenarios = [args.original.scenario(one, moved, seed, args.who.protocol) for one, seed in cases]
    scenario = scenarios[0]
    report_findings(scenario)
    file = _place(args, data.name, scenario.kind)
    original = original_or_trained(args.original, args.source, args.output.seed, data, device)
    training = original.training(data, args.source)
    method = preset(args.method, data.name, scenario.kind, len(data.train), args.start)
    model = original.load(training, moved, device)
    options: dict[str, Any] = {
        "new_model": factory(training, moved),
        "recipe": training.recipe,
        "head": original.head_name(),
    }
    options["retrained"] = (
        _retrained(training, model, scenarios, options)
        if _objective(args, scenario) == "gap"
        else None
    )
    trials: list[Trial] = []
    code = DONE
    try:
        with counting(f"tune {args.method}") as progress:
            for trial in tune(method, model, scenarios, args.budget, **options):
                trials.append(trial)
                progress(trial.number + 1, args.budget)
    except KeyboardInterrupt:
        if not trials:
            raise
        say(f"Interrupted after {len(trials)} of {args.budget} trials: what they found is kept.")
        code = INTERRUPTED
    found = changes(method, best(trials))
    _write(
        file,
        args,
        describe(request, data.classes),
        scenario,
        with_settings(method, best(trials).settings),
        trials,
    )
    if args.output.json:
        emit(
            {
                "method": args.method,
                "best": found,
                "preset": str(file),
                "trials": [asdict(trial) for trial in trials],
            }
        )
    else:
        _tell(trials, args, found, file)
    return code


def _objective(args: Tune, scenario: Scenario) -> Objective:
    if args.objective == "auto":
        return "gap" if scenario.kind == "samples" else "aus"
    if args.objective == "gap" and scenario.kind == "class":
        raise BadInput(
            "--objective gap is for single samples: of whole classes the objective is AUS."
        )
    return args.objective


def _retrained(
    training: Training, model: nn.Module, scenarios: Sequence[Scenario], options: dict[str, Any]
) -> list[nn.Module]:
    """Load or train a model without the forget set of each scenario."""
    if options["new_model"] is None:
        raise BadInput(
            "The objective 'gap' needs retrained models, and how to build one is not known here: use --objective aus."
        )
    found = []
    with counting("retrained models") as progress:
        for place, scenario in enumerate(scenarios):
            retraining = Retraining(
                scenario,
                model,
                options["new_model"],
                options["recipe"],
                training,
                ArtifactStore(default_root()),
            )
            found.append(retraining.load_or_train(scenario.seed))
            progress(place + 1, len(scenarios))
    return found


def _check_cases(args: Tune) -> None:
    """Raise an error where --each or --draws do not go with the request."""
    if args.each and not args.who.classes:
        raise BadInput(
            "--each takes the --classes one at a time; for a --fraction there is --draws."
        )
    if args.each and args.draws != 1:
        raise BadInput("--draws needs --fraction: a class can be drawn only once.")
    if args.draws != 1 and (args.draws < 1 or args.who.fraction is None):
        raise BadInput(
            f"--draws is a number of random shares, at least 1, and needs --fraction; got {args.draws}."
        )


def _cases(args: Tune, request: Request) -> list[tuple[Request, int]]:
    """What a trial runs on: requests with their seeds."""
    seed = args.output.seed
    if args.each and isinstance(request, ForgetClasses):
        return [(ForgetClasses([name]), seed) for name in request.classes]
    return [(request, seed + draw) for draw in range(args.draws)]


def _place(args: Tune, data: str, kind: str) -> Path:
    """Asked for before anything runs."""
    file = args.output.out or Path(f"{args.method}-{data}-{kind}.toml")
    check_file(file)
    if file.exists() and not args.output.overwrite:
        raise BadInput(f"{file} exists: choose another --out, or --overwrite it.")
    files.check_replaceable(file, MARK.encode())
    return file


def _write(
    file: Path, args: Tune, who: str, scenario: Scenario, found: Method, trials: Sequence[Trial]
) -> None:
    """Write every setting: whatever preset the file is put on, it is what the best trial ran with."""
    settings = {name: value for name, value in asdict(found).items() if value is not None}  # type: ignore[call-overload]
    about = {
        "from": "search",
        "objective": best(trials).objective,
        "trials": len(trials),
        "date": datetime.now(UTC).date().isoformat(),
    }
    who += (", each alone" if args.each else "") + (
        f", {args.draws} draws" if args.draws > 1 else ""
    )
    where = f"the holdout of {scenario.data.name}: {who}; seed {scenario.seed}"
    note = f"{MARK} {len(trials)} trials on {where}, from the preset {args.start!r}.\n"
    tables = {
        args.method: {scenario.data.name: {"tuned": {scenario.kind: {**settings, "source": about}}}}
    }
    files.write_text(file, note + tomli_w.dumps(tables))


def _tell(trials: list[Trial], args: Tune, found: dict[str, Any], file: Path) -> None:
    names = list(trials[0].settings)
    cells = [
        [str(trial.number), *(_value(trial.settings[name]) for name in names), *_reached(trial)]
        for trial in trials
    ]
    score = {"aus": "holdout AUS", "gap": "1 - gap to retrained"}[trials[0].objective]
    table(["trial", *names, score, "kept %", "forgotten %"], cells)
    for trial in trials:
        if trial.error:
            write(f"trial {trial.number} failed: {trial.error}")
    pruned = [str(trial.number) for trial in trials if trial.pruned]
    if pruned:
        write(f"Stopped early, as they could not become the best: trials {', '.join(pruned)}.")
    edges = at_edge(args.method, trials)
    if edges:
        write(
            f"The best value of {', '.join(edges)} is at the edge of what was tried: a larger --budget looks beyond it."
        )
    changed = ", ".join(f"{name} {_value(value)}" for name, value in found.items())
    write(
        f"Best: the preset {args.start!r} {f'with {changed}' if changed else 'itself'}. Written to {file}"
    )
    say(f"Use it: duck forget --method {args.method} --presets {file} ...")


def _reached(trial: Trial) -> list[str]:
    return [number(trial.score), percent(trial.kept), percent(trial.forgotten)]


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
