"""Run many methods on one request, and store the unlearned models as runs."""

from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import torch

from duck import runs
from duck.artifacts import ArtifactStore, default_root
from duck.commands.forget import ForgetOptions, PreparedRequest, apply_request, load_data
from duck.commands.options import DataOptions, RunOptions, resolve_classes
from duck.commands.train import TrainOptions, train_on
from duck.comparison import Compared, CompareOptions, compare, ignore_progress
from duck.display import Display
from duck.engines import INLINE, Engine
from duck.methods.base import Method
from duck.preparation import Preparations
from duck.runtime import pick_device
from duck.types import Data
from duck.unlearning import notes


@dataclass(frozen=True, eq=False)
class Comparison:
    """The methods of a comparison, and the outcomes of those that ended."""

    prepared: PreparedRequest
    methods: dict[str, Method]
    compared: list[Compared] = field(default_factory=list)
    """After Ctrl-C fewer than the methods. Several workers end in another order."""

    @property
    def is_complete(self) -> bool:
        """Whether the comparison was not interrupted."""
        return len(self.compared) == len(self.methods)

    @property
    def is_sound(self) -> bool:
        """Whether a method neither failed nor lost too much accuracy."""
        outcomes = [row.outcome for row in self.compared if row.outcome]
        return any(outcome.status != "damaged" for outcome in outcomes)

    @property
    def in_order(self) -> list[Compared]:
        """The outcomes in the order of the methods."""
        order = list(self.methods)
        return sorted(self.compared, key=lambda row: order.index(row.name))


def compare_methods(
    forget: ForgetOptions,
    options: CompareOptions,
    engine: Engine = INLINE,
    display: Display | None = None,
) -> Comparison:
    """Run many methods on one request, as `duck compare` does.

    forget   the request, the original, and the folder of the runs, if they are to be stored;
             without an original, one is trained
    """
    options.check()
    display = display or Display()
    output = forget.output
    device = pick_device(output.device)
    data, source = load_data(forget, display)
    # Errors in the request and in the choice of methods come before an original is trained.
    request = resolve_classes(forget.request, data)
    methods = options.choose(forget.original.scenario(request, data, output.seed, forget.protocol))
    forget = with_original(forget, data, source, device, display)
    prepared = apply_request(forget, data, source, device)
    for finding in prepared.findings:
        display.message(str(finding))
    comparison = Comparison(prepared, methods)
    with ExitStack() as reserved:
        for name, method in methods.items():
            if output.out is not None:
                folder, experiment = output.out / name, prepared.experiment(method)
                if reserved.enter_context(runs.reserve(folder, experiment, output.overwrite)):
                    display.message(
                        f"{folder} already holds this run, which stays; --overwrite replaces it."
                    )
        try:
            _run(comparison, options, engine, display)
        except KeyboardInterrupt:
            ended = f"{len(comparison.compared)} of {len(methods)} methods ended"
            display.message(f"Interrupted: {ended}.")
    return comparison


def _run(comparison: Comparison, options: CompareOptions, engine: Engine, display: Display) -> None:
    """Run the methods; each outcome is stored as it ends."""
    prepared, out = comparison.prepared, comparison.prepared.options.output.out
    total = len(comparison.methods)
    root = default_root(out / "run" if out else None, prepared.options.original.run)
    with display.progress("compare") as progress:
        compared = compare(
            prepared.original,
            replace(prepared.scenario, data=prepared.scenario.data.to(prepared.device)),
            comparison.methods,
            # A stored run has the curves of each epoch; a table alone needs none.
            watch=ignore_progress if out else None,
            preparations=Preparations(ArtifactStore(root), prepared.training),
            max_accuracy_loss=options.max_accuracy_loss,
            engine=engine,
        )
        for count, row in enumerate(compared, start=1):
            progress(count, total)
            ending = f"{row.outcome.seconds:.2f} s" if row.outcome else row.error
            display.message(f"{count}/{total} {row.name}: {ending}")
            comparison.compared.append(_with_notes(row, prepared))
            if out is not None and row.outcome is not None:
                overwrite = prepared.options.output.overwrite
                prepared.store(row.outcome, row.method, out / row.name, overwrite)


def _with_notes(row: Compared, prepared: PreparedRequest) -> Compared:
    if row.outcome is None:
        return row
    outcome = prepared.add_notes(row.outcome, row.method)
    return replace(row, outcome=outcome, notes=tuple(notes(prepared.scenario, outcome)))


def with_original(
    forget: ForgetOptions, data: Data, source: DataOptions, device: torch.device, display: Display
) -> ForgetOptions:
    """Return the options with their model. Without one, train it now, or find it under runs/."""
    original = forget.original
    if original.run or original.model:
        original.check()
        return forget
    options = TrainOptions(source, output=RunOptions(seed=forget.output.seed))
    run = train_on(data, options, device, display)
    return replace(forget, original=replace(original, run=run))
