"""duck compare: run many methods on one scenario and print one table."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from duck import runs
from duck.artifacts import ArtifactStore, default_root
from duck.cli.console import CONSOLE, emit, number, percent, print_table, progress_bar, say, write
from duck.cli.exit_codes import DONE, FAILED, INTERRUPTED
from duck.cli.inputs import DataFlags, EngineFlags, RunFlags, parse, read_flags
from duck.cli.original import (
    OriginalFlags,
    RequestFlags,
    add_notes,
    data_flags,
    model_factory,
    report_findings,
    unprinted_notes,
)
from duck.comparison import Compared, CompareOptions, compare, ignore_progress, rows
from duck.data import SMALL_IMAGES
from duck.data.checks import Finding
from duck.experiment import Experiment, Training
from duck.methods.base import Method
from duck.methods.presets import default_recipe
from duck.metrics import KeptAccuracy
from duck.preparation import Preparations
from duck.run_train import TrainOptions, train_on
from duck.runtime import pick_device
from duck.scenarios import Request, describe
from duck.types import Data, Scenario
from duck.unlearning import notes

SPLITS = ("forget", "retain", "test", "forget_test", "retain_test")


@dataclass
class CompareFlags:
    """Run many methods on one scenario and print one table: scores, gaps to Retrained, seconds.

    The model is --run RUN, or your own as for `duck forget`. With neither, a model is trained on
    --data first. With --out, each unlearned model is stored as a run below that folder as it ends,
    with its accuracies after each epoch. --engine and --workers run several methods at the same
    time. Exit code 1 if every method failed or lost too much accuracy.
    """

    source: DataFlags
    output: RunFlags
    original: OriginalFlags
    request: RequestFlags
    engine: EngineFlags
    compare: CompareOptions = field(default_factory=CompareOptions)
    with_copies: bool = False
    """Also forget training samples that are exact copies of those to be forgotten."""


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The data, the request, the original and the methods of a comparison."""

    data: Data
    scenario: Scenario
    request: Request
    original: OriginalFlags
    training: Training
    methods: dict[str, Method]
    findings: Sequence[Finding]
    copies: str
    """How many copies were added to the request."""


def main(argv: list[str]) -> int:
    default = CompareFlags(
        data_flags(read_flags(argv)), RunFlags(), OriginalFlags(), RequestFlags(), EngineFlags()
    )
    args = parse(CompareFlags, argv, "compare", default)
    _check(args)
    device = pick_device(args.output.device)
    inputs = _load_inputs(args, device)
    experiments = _experiments(args, inputs, device)
    compared: list[Compared] = []
    with ExitStack() as reserved:
        _reserve(args.output, experiments, reserved)
        try:
            for row in _run_methods(args, inputs, device):
                compared.append(row)
                _store(args, inputs, experiments[row.name], row)
            code = DONE if any(_is_sound(row) for row in compared) else FAILED
        except KeyboardInterrupt:
            say(f"Interrupted: {len(compared)} of {len(inputs.methods)} methods ended.")
            code = INTERRUPTED
    # Several workers end in another order than the table has.
    order = list(inputs.methods)
    found = rows(sorted(compared, key=lambda row: order.index(row.name)))
    if args.output.json:
        emit(found)
    else:
        _print_comparison(found, inputs)
    return code


def _check(args: CompareFlags) -> None:
    """Raise errors that are known before the data are read."""
    args.request.check()
    args.engine.create()
    args.compare.check()


def _load_inputs(args: CompareFlags, device: torch.device) -> _Inputs:
    data = args.source.load(split=args.original.splits_data())
    seed = args.output.seed
    protocol = args.request.protocol
    request = args.request.build(data)
    copies = ""
    if args.with_copies:
        request, copies = args.original.with_copies(request, data, seed, protocol)
    scenario = args.original.scenario(request, data, seed, protocol)
    findings = report_findings(scenario)
    methods = args.compare.choose(scenario)
    original = original_or_trained(args.original, args.source, seed, data, device)
    training = original.training(data, args.source)
    return _Inputs(data, scenario, request, original, training, methods, findings, copies)


def _experiments(
    args: CompareFlags, inputs: _Inputs, device: torch.device
) -> dict[str, Experiment]:
    experiment = Experiment(
        inputs.training,
        inputs.request,
        None,
        args.output.seed,
        args.request.protocol,
        inputs.original.earlier(),
        inputs.original.other_head(inputs.training, inputs.data, device),
    )
    return {name: replace(experiment, method=method) for name, method in inputs.methods.items()}


def _reserve(output: RunFlags, experiments: Mapping[str, Experiment], reserved: ExitStack) -> None:
    """Lock the run folders, and print which of the runs exist already."""
    if output.out is None:
        return
    for name, experiment in experiments.items():
        folder = output.out / name
        if reserved.enter_context(runs.reserve(folder, experiment, output.overwrite)):
            say(f"{folder} already holds this run, which stays; --overwrite replaces it.")


def _store(args: CompareFlags, inputs: _Inputs, experiment: Experiment, row: Compared) -> None:
    if args.output.out is None or row.outcome is None:
        return
    folder = args.output.out / row.name
    places = inputs.original.places(folder, args.source)
    run = runs.record(experiment, inputs.scenario, row.outcome, **places)
    runs.save(run, row.outcome.model, folder, args.output.overwrite)


def _is_sound(row: Compared) -> bool:
    return row.outcome is not None and row.outcome.status != "damaged"


def original_or_trained(
    original: OriginalFlags, source: DataFlags, seed: int, data: Data, device: torch.device
) -> OriginalFlags:
    """Return the given model. Without one, train it now, or find it under runs/."""
    if original.run or original.model:
        original.check()
        return original
    recipe = default_recipe(data.name, len(data.train), data.augment)
    name = "convnet" if data.name in SMALL_IMAGES else "resnet18"
    options = TrainOptions(source, name, recipe, output=RunFlags(seed=seed))
    return replace(original, run=train_on(data, options, device, CONSOLE))


def _run_methods(args: CompareFlags, inputs: _Inputs, device: torch.device) -> Iterator[Compared]:
    data = inputs.scenario.data.to(device)
    scenario = replace(inputs.scenario, data=data)
    total = len(inputs.methods)
    with progress_bar("compare") as progress:
        compared = compare(
            inputs.original.load(inputs.training, data, device),
            scenario,
            inputs.methods,
            new_model=model_factory(inputs.training, data),
            recipe=inputs.training.recipe,
            head=inputs.original.head_name(),
            # A stored run has the curves of each epoch; a table alone needs none.
            watch=ignore_progress if args.output.out else None,
            preparations=Preparations(ArtifactStore(default_root())),
            max_accuracy_loss=args.compare.max_accuracy_loss,
            engine=args.engine.create(),
        )
        for count, row in enumerate(compared, start=1):
            progress(count, total)
            ending = f"{row.outcome.seconds:.2f} s" if row.outcome else row.error
            say(f"{count}/{total} {row.name}: {ending}")
            yield _add_notes(row, inputs)


def _add_notes(row: Compared, inputs: _Inputs) -> Compared:
    if row.outcome is None:
        return row
    outcome = add_notes(
        row.outcome,
        row.method,
        inputs.training,
        inputs.scenario.data,
        inputs.original,
        inputs.findings,
        inputs.copies,
    )
    return replace(row, outcome=outcome, notes=tuple(notes(inputs.scenario, outcome)))


def _print_comparison(found: Sequence[Mapping[str, Any]], inputs: _Inputs) -> None:
    damaged = {row["method"] for row in found if row.get("status") == "damaged"}
    for row in found:
        if row["method"] in damaged:
            write(f"{row['method']}: {KeptAccuracy(**row['kept_accuracy'])}")
    has_gaps = any(row.get("gaps") for row in found)
    _print_scores(found, inputs, has_gaps)
    for row in found:
        if "error" in row:
            write(f"{row['method']} failed: {row['error']}")
    _print_notes(found, damaged, inputs.findings)
    before = "`before` are the seconds of what a method prepares once for an original."
    write(f"Gaps are to Retrained, in points; {before}" if has_gaps else before)


def _print_scores(found: Sequence[Mapping[str, Any]], inputs: _Inputs, has_gaps: bool) -> None:
    scenario = inputs.scenario
    counts = {name: len(getattr(scenario, name)) for name in SPLITS}
    splits = [name for name in SPLITS if counts[name]]
    sizes = ", ".join(f"{name} {counts[name]}" for name in splits)
    request = describe(inputs.request, scenario.data.classes)
    write(f"Forget {request} of {scenario.data.name}; n: {sizes}")
    gaps: tuple[str, ...] = ()
    if has_gaps:
        gaps = ("retain_test", "forget_test") if scenario.kind == "class" else ("test", "forget")
    scores = [f"{name} %" for name in splits]
    differences = [f"gap {name}" for name in gaps]
    columns = ["method", "AUS", *scores, *differences, "seconds", "before"]
    print_table(columns, [_cells(row, splits, gaps) for row in found if "error" not in row])


def _print_notes(
    found: Sequence[Mapping[str, Any]], damaged: set[str], printed: Sequence[Finding]
) -> None:
    """Print each note once, with the methods that it is about."""
    methods_by_note: dict[str, list[str]] = {}
    for row in found:
        # The original forgets nothing: its notes say what everybody expects.
        if row["method"] == "original":
            continue
        # The first note of a damaged model says that, and is printed already.
        own_notes = row.get("notes", [])[row["method"] in damaged :]
        for note in unprinted_notes(own_notes, printed):
            methods_by_note.setdefault(note, []).append(row["method"])
    for note, methods in methods_by_note.items():
        write(f"{', '.join(methods)}: {note}")


def _cells(row: Mapping[str, Any], splits: Sequence[str], gap_names: Sequence[str]) -> list[str]:
    scores = row["scores"]
    accuracies = [percent(scores[name]) for name in splits]
    gaps = [_format_gap((row["gaps"] or {}).get(name)) for name in gap_names]
    seconds = [f"{row['seconds']:.2f}", f"{row['prepare_seconds']:.2f}"]
    return [row["method"], number(scores["aus"]), *accuracies, *gaps, *seconds]


def _format_gap(gap: float | None) -> str:
    return "-" if gap is None else f"{100 * gap:+.2f}"
