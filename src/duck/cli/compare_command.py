"""duck compare: run many methods on one scenario and print one table."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from duck import runs
from duck.artifacts import ArtifactStore, default_root
from duck.cli import inputs
from duck.cli.console import CONSOLE, emit, number, percent, print_table, progress_bar, say, write
from duck.cli.exit_codes import DONE, FAILED, INTERRUPTED
from duck.cli.parsing import parse
from duck.comparison import Compared, CompareOptions, compare, ignore_progress, rows
from duck.data import SMALL_IMAGES
from duck.data.checks import Finding
from duck.experiment import Experiment
from duck.methods.presets import default_recipe
from duck.metrics import KeptAccuracy
from duck.options import DataOptions, OriginalOptions, model_factory
from duck.originals import TrainOptions, train_on
from duck.preparation import Preparations
from duck.run_forget import add_notes
from duck.runtime import pick_device
from duck.scenarios import add_copies, describe
from duck.types import Data
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

    source: DataOptions
    output: inputs.RunFlags
    original: OriginalOptions
    request: inputs.RequestFlags
    engine: inputs.EngineFlags
    compare: CompareOptions = field(default_factory=CompareOptions)
    with_copies: bool = False
    """Also forget training samples that are exact copies of those to be forgotten."""


def main(argv: list[str]) -> int:
    default = CompareFlags(*inputs.default_flags(argv))
    args = parse(CompareFlags, argv, "compare", default)
    comparison = _Comparison(args)
    compared: list[Compared] = []
    with ExitStack() as reserved:
        comparison.reserve(reserved)
        try:
            for row in comparison.run():
                compared.append(row)
                comparison.store(row)
            sound = [row for row in compared if row.outcome and row.outcome.status != "damaged"]
            code = DONE if sound else FAILED
        except KeyboardInterrupt:
            say(f"Interrupted: {len(compared)} of {len(comparison.methods)} methods ended.")
            code = INTERRUPTED
    # Several workers end in another order than the table has.
    order = list(comparison.methods)
    found = rows(sorted(compared, key=lambda row: order.index(row.name)))
    if args.output.json:
        emit(found)
    else:
        _print_comparison(found, comparison)
    return code


class _Comparison:
    """The data, the request, the original and the methods of a comparison."""

    def __init__(self, args: CompareFlags) -> None:
        # Errors that are known before the data are read.
        args.request.read()
        args.engine.create()
        args.compare.check()
        self.args = args
        self.device = pick_device(args.output.device)
        seed, protocol = args.output.seed, args.request.protocol
        data = inputs.load_data(args.source, args.original.splits_data())
        self.request = args.request.build(data)
        self.scenario = args.original.scenario(self.request, data, seed, protocol)
        self.copies = ""
        if args.with_copies:
            self.request, self.copies = add_copies(self.request, self.scenario)
            self.scenario = args.original.scenario(self.request, data, seed, protocol)
        self.findings = inputs.report_findings(self.scenario)
        self.methods = args.compare.choose(self.scenario)
        self.original = original_or_trained(args.original, args.source, seed, data, self.device)
        self.training = self.original.training(data, args.source)
        experiment = Experiment(
            self.training,
            self.request,
            None,
            seed,
            protocol,
            self.original.earlier(),
            self.original.other_head(self.training, data, self.device),
        )
        self.experiments = {
            name: replace(experiment, method=method) for name, method in self.methods.items()
        }

    def reserve(self, reserved: ExitStack) -> None:
        """Lock the run folders, and print which of the runs exist already."""
        output = self.args.output
        if output.out is None:
            return
        for name, experiment in self.experiments.items():
            folder = output.out / name
            if reserved.enter_context(runs.reserve(folder, experiment, output.overwrite)):
                say(f"{folder} already holds this run, which stays; --overwrite replaces it.")

    def run(self) -> Iterator[Compared]:
        """Run the methods and yield each as it ends."""
        data = self.scenario.data.to(self.device)
        total = len(self.methods)
        with progress_bar("compare") as progress:
            compared = compare(
                self.original.load(self.training, data, self.device),
                replace(self.scenario, data=data),
                self.methods,
                new_model=model_factory(self.training, data),
                recipe=self.training.recipe,
                head=self.original.head_name(),
                # A stored run has the curves of each epoch; a table alone needs none.
                watch=ignore_progress if self.args.output.out else None,
                preparations=Preparations(ArtifactStore(default_root())),
                max_accuracy_loss=self.args.compare.max_accuracy_loss,
                engine=self.args.engine.create(),
            )
            for count, row in enumerate(compared, start=1):
                progress(count, total)
                ending = f"{row.outcome.seconds:.2f} s" if row.outcome else row.error
                say(f"{count}/{total} {row.name}: {ending}")
                yield self._add_notes(row)

    def _add_notes(self, row: Compared) -> Compared:
        if row.outcome is None:
            return row
        facts = self.training, self.scenario.data, self.original, self.findings, self.copies
        outcome = add_notes(row.outcome, row.method, *facts)
        return replace(row, outcome=outcome, notes=tuple(notes(self.scenario, outcome)))

    def store(self, row: Compared) -> None:
        """Store an unlearned model as a run, if --out names a folder."""
        output = self.args.output
        if output.out is None or row.outcome is None:
            return
        folder = output.out / row.name
        places = self.original.places(folder, self.args.source)
        run = runs.record(self.experiments[row.name], self.scenario, row.outcome, **places)
        runs.save(run, row.outcome.model, folder, output.overwrite)


def original_or_trained(
    original: OriginalOptions, source: DataOptions, seed: int, data: Data, device: torch.device
) -> OriginalOptions:
    """Return the given model. Without one, train it now, or find it under runs/."""
    if original.run or original.model:
        original.check()
        return original
    recipe = default_recipe(data.name, len(data.train), data.augment)
    name = "convnet" if data.name in SMALL_IMAGES else "resnet18"
    options = TrainOptions(source, name, recipe, output=inputs.RunFlags(seed=seed))
    return replace(original, run=train_on(data, options, device, CONSOLE))


def _print_comparison(found: Sequence[Mapping[str, Any]], comparison: _Comparison) -> None:
    damaged = {row["method"] for row in found if row.get("status") == "damaged"}
    for row in found:
        if row["method"] in damaged:
            write(f"{row['method']}: {KeptAccuracy(**row['kept_accuracy'])}")
    has_gaps = any(row.get("gaps") for row in found)
    _print_scores(found, comparison, has_gaps)
    for row in found:
        if "error" in row:
            write(f"{row['method']} failed: {row['error']}")
    _print_notes(found, damaged, comparison.findings)
    before = "`before` are the seconds of what a method prepares once for an original."
    write(f"Gaps are to Retrained, in points; {before}" if has_gaps else before)


def _print_scores(
    found: Sequence[Mapping[str, Any]], comparison: _Comparison, has_gaps: bool
) -> None:
    scenario = comparison.scenario
    counts = {name: len(getattr(scenario, name)) for name in SPLITS}
    splits = [name for name in SPLITS if counts[name]]
    sizes = ", ".join(f"{name} {counts[name]}" for name in splits)
    request = describe(comparison.request, scenario.data.classes)
    write(f"Forget {request} of {scenario.data.name}; n: {sizes}")
    gaps: tuple[str, ...] = ()
    if has_gaps:
        gaps = ("retain_test", "forget_test") if scenario.kind == "class" else ("test", "forget")
    table = []
    for row in found:
        if "error" not in row:
            cells = {"method": row["method"], "AUS": number(row["scores"]["aus"])}
            cells |= {f"{name} %": percent(row["scores"][name]) for name in splits}
            cells |= {f"gap {name}": _format_gap((row["gaps"] or {}).get(name)) for name in gaps}
            cells["seconds"] = f"{row['seconds']:.2f}"
            table.append({**cells, "before": f"{row['prepare_seconds']:.2f}"})
    print_table(table)


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
        for note in inputs.unprinted_notes(own_notes, printed):
            methods_by_note.setdefault(note, []).append(row["method"])
    for note, methods in methods_by_note.items():
        write(f"{', '.join(methods)}: {note}")


def _format_gap(gap: float | None) -> str:
    return "-" if gap is None else f"{100 * gap:+.2f}"
