"""duck compare: one scenario through many methods, in one table."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from duck import runs
from duck.artifacts import ArtifactStore, default_root
from duck.cli.console import counting, emit, number, percent, say, table, write
from duck.cli.exit_codes import DONE, FAILED, INTERRUPTED
from duck.cli.inputs import DataFlags, RunFlags, parse
from duck.cli.original import (
    OriginalFlags,
    RequestFlags,
    data_flags,
    factory,
    noted,
    notes_left,
    report_findings,
)
from duck.cli.train_command import trained
from duck.comparison import Compared, compare, rows, suited
from duck.data.checks import Finding
from duck.experiment import Experiment, Training
from duck.methods.base import METHODS, Method
from duck.methods.presets import Preset, default_recipe, has_settings, missing_settings, preset
from duck.metrics import KeptAccuracy, check_limit
from duck.preparation import Preparations
from duck.runtime import pick_device
from duck.scenarios import Request, describe
from duck.types import Data, Scenario
from duck.unlearning import notes


@dataclass
class Compare:
    """Run one scenario through many methods and print one table: scores, gaps to Retrained, seconds.

    The model is --run RUN, or your own as for `duck forget`; with neither, a model is trained on --data first.
    With --out, each unlearned model is stored as a run below that folder as it ends, with its accuracies after each epoch.
    Exit code 1 where every method failed or lost too much accuracy.
    """

    source: DataFlags
    output: RunFlags
    original: OriginalFlags
    who: RequestFlags
    methods: tuple[str, ...] = field(default=("all",))
    """Names from `duck list methods`, or all that suit the scenario."""
    preset: Preset = "tuned"
    """paper: the paper's settings; tuned: with what was found on holdout data."""
    presets: Path | None = None
    """A file of `duck tune`, on top of the presets of the methods that it has settings for."""
    with_copies: bool = False
    """Also forget training samples that are exact copies of those to be forgotten."""
    max_accuracy_loss: float | None = None
    """Share of accuracy on unseen samples that a method may lose, as for `duck forget`: what loses more is named first."""


def main(argv: list[str]) -> int:
    default = Compare(data_flags(argv), RunFlags(), OriginalFlags(), RequestFlags())
    args = parse(Compare, argv, "compare", default)
    args.who.check()
    device = pick_device(args.output.device)
    check_limit(args.max_accuracy_loss)
    for name in args.methods:
        if name != "all":
            METHODS[name]  # an unknown name is an error before anything runs
    data = args.source.load(split=args.original.splits_data())
    request, copies = args.who.request(data), ""
    if args.with_copies:
        request, copies = args.original.with_copies(
            request, data, args.output.seed, args.who.protocol
        )
    scenario = args.original.scenario(request, data, args.output.seed, args.who.protocol)
    findings = report_findings(scenario)
    methods = _methods(args, scenario)
    original = original_or_trained(args.original, args.source, args.output.seed, data, device)
    training = original.training(data, args.source)
    head = original.other_head(training, data, device)
    made = Experiment(
        training, request, None, args.output.seed, args.who.protocol, original.earlier(), head
    )
    experiments = {name: replace(made, method=method) for name, method in methods.items()}
    compared: list[Compared] = []
    with ExitStack() as held:
        _reserve(args.output, experiments, held)
        try:
            for row in _compared(
                args,
                original,
                training,
                replace(scenario, data=scenario.data.to(device)),
                methods,
                findings,
                copies,
            ):
                compared.append(row)
                if args.output.out and row.outcome is not None:
                    folder = args.output.out / row.name
                    run = runs.record(
                        experiments[row.name],
                        scenario,
                        row.outcome,
                        **original.places(folder, args.source),
                    )
                    runs.save(run, row.outcome.model, folder, args.output.overwrite)
            sound = [
                row
                for row in compared
                if row.outcome is not None and row.outcome.status != "damaged"
            ]
            code = DONE if sound else FAILED
        except KeyboardInterrupt:
            say(f"Interrupted: {len(compared)} of {len(methods)} methods ended.")
            code = INTERRUPTED
    if args.output.json:
        emit(rows(compared))
    else:
        _tell(rows(compared), request, scenario, findings)
    return code


def _reserve(output: RunFlags, experiments: dict[str, Experiment], held: ExitStack) -> None:
    """Keep other processes away from the run folders, and say which of the runs are there already."""
    for name, experiment in experiments.items() if output.out else ():
        folder = (output.out or Path()) / name
        if held.enter_context(runs.reserve(folder, experiment, output.overwrite)):
            say(f"{folder} already holds this run, which stays; --overwrite replaces it.")


def original_or_trained(
    original: OriginalFlags, source: DataFlags, seed: int, data: Data, device: torch.device
) -> OriginalFlags:
    """The given model; where none is given, one trained now and stored under runs/, or found there."""
    if original.run or original.model:
        original.check()
        return original
    recipe = default_recipe(data.name, len(data.train), data.augment)
    name = "convnet" if data.name == "digits" else "resnet18"
    return replace(original, run=trained(data, source, RunFlags(seed=seed), name, recipe, device))


def _methods(args: Compare, scenario: Scenario) -> dict[str, Method]:
    names = suited(scenario.kind) if "all" in args.methods else list(args.methods)
    more: dict[str, Path] = {}
    if args.presets is not None:
        more = {
            name: args.presets
            for name in names
            if has_settings(args.presets, name, scenario.data.name, scenario.kind)
        }
        if not more:
            raise missing_settings(args.presets, "METHOD", scenario.data.name, scenario.kind)
    return {name: _settings(name, scenario, args.preset, more.get(name)) for name in names}


def _compared(
    args: Compare,
    original: OriginalFlags,
    training: Training,
    scenario: Scenario,
    methods: dict[str, Method],
    findings: Sequence[Finding],
    copies: str,
) -> Iterator[Compared]:
    model = original.load(training, scenario.data, scenario.data.train.device)
    with counting("compare") as progress:
        runs = compare(
            model,
            scenario,
            methods,
            new_model=factory(training, scenario.data),
            recipe=training.recipe,
            head=original.head_name(),
            # What is stored has the curves of a run, as from `duck forget`; a table alone needs none.
            watch=(lambda _: None) if args.output.out else None,
            preparations=Preparations(ArtifactStore(default_root())),
            max_accuracy_loss=args.max_accuracy_loss,
        )
        for index, row in enumerate(runs):
            progress(index + 1, len(methods))
            say(
                f"{index + 1}/{len(methods)} {row.name}: {f'{row.outcome.seconds:.2f} s' if row.outcome else row.error}"
            )
            yield _noted(row, training, scenario, original, findings, copies)


def _noted(
    row: Compared,
    training: Training,
    scenario: Scenario,
    original: OriginalFlags,
    findings: Sequence[Finding],
    copies: str,
) -> Compared:
    if row.outcome is None:
        return row
    outcome = noted(row.outcome, row.method, training, scenario.data, original, findings, copies)
    return replace(row, outcome=outcome, notes=tuple(notes(scenario, outcome)))


def _settings(name: str, scenario: Scenario, which: Preset, more: Path | None) -> Method:
    # A method that does not suit the scenario must fail in its own row.
    kind = scenario.kind if scenario.kind in METHODS[name].scenarios else METHODS[name].scenarios[0]
    return preset(name, scenario.data.name, kind, len(scenario.data.train), which, more)


def _tell(
    found: list[dict[str, Any]], request: Request, scenario: Scenario, printed: Sequence[Finding]
) -> None:
    n = {
        name: len(getattr(scenario, name))
        for name in ("forget", "retain", "test", "forget_test", "retain_test")
    }
    damaged = {
        row["method"]: KeptAccuracy(**row["kept_accuracy"])
        for row in found
        if row.get("status") == "damaged"
    }
    for method, lost in damaged.items():
        write(f"{method}: {lost}")
    counts = ", ".join(f"{name} {count}" for name, count in n.items() if count)
    write(f"Forget {describe(request, scenario.data.classes)} of {scenario.data.name}; n: {counts}")
    kept, gone = ("retain_test", "forget_test") if scenario.kind == "class" else ("test", "forget")
    has_gaps, splits = any(row.get("gaps") for row in found), [name for name in n if n[name]]
    gaps = (kept, gone) if has_gaps else ()
    columns = [
        "method",
        "AUS",
        *(f"{name} %" for name in splits),
        *(f"gap {name}" for name in gaps),
        "seconds",
        "before",
    ]
    table(columns, [_cells(row, splits, gaps) for row in found if "error" not in row])
    for row in found:
        if "error" in row:
            write(f"{row['method']} failed: {row['error']}")
    said = {
        row["method"]: notes_left(row["notes"][row["method"] in damaged :], printed)
        for row in found
        if row["method"] != "original" and row.get("notes")
    }  # of it they go without saying
    for note in dict.fromkeys(note for told in said.values() for note in told):
        write(f"{', '.join(name for name, told in said.items() if note in told)}: {note}")
    before = "`before` are the seconds of what a method prepares once for an original."
    write(f"Gaps are to Retrained, in points; {before}" if has_gaps else before)


def _cells(row: dict[str, Any], names: Sequence[str], gap_names: Sequence[str]) -> list[str]:
    scores, gaps = row["scores"], row["gaps"] or {}
    distances = [
        "-" if gaps.get(name) is None else f"{100 * gaps[name]:+.2f}" for name in gap_names
    ]
    times = [f"{row['seconds']:.2f}", f"{row['prepare_seconds']:.2f}"]
    return [
        row["method"],
        number(scores["aus"]),
        *(percent(scores[name]) for name in names),
        *distances,
        *times,
    ]
