"""Search the settings of a method and write the best as a preset."""

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import tomli_w
from torch import nn

from duck.artifacts import ArtifactStore, default_root
from duck.commands.compare import with_original
from duck.commands.forget import ForgetOptions, load_data
from duck.commands.options import model_factory, resolve_classes
from duck.data.checks import check_data
from duck.display import Display
from duck.engines import INLINE, Engine
from duck.errors import BadInput
from duck.files import check_replaceable, write_text
from duck.methods.base import Method
from duck.methods.presets import UNSET, Preset, preset
from duck.retraining import Retraining
from duck.runs import check_file_writable
from duck.runtime import pick_device
from duck.scenarios import ForgetClasses, ForgetFraction, Request, describe
from duck.search_spaces import Settings, space_of
from duck.tuning import (
    Objective,
    Trial,
    best,
    changes,
    check_search,
    in_order,
    tune,
    with_settings,
)
from duck.types import Original, Scenario

FILE_MARK = "# The best of"
"""The first words of every file of a preset. A search replaces no other file."""


@dataclass(frozen=True)
class TuneOptions:
    """How the hyperparameters of a method are searched."""

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
    objective: Objective = "memory"
    """What is maximised on holdout data. memory: 1 minus residual memory and the accuracy lost,
    compared with a retrained model, which is trained first. gap: 1 minus the differences to it in
    holdout accuracy, forget accuracy and confidence AUC, for single samples. aus: the score AUS,
    which rewards a model that hides a class, and for single samples doing nothing."""

    def check(self, request: Request) -> None:
        """Raise an error for options that do not fit the request."""
        is_fraction = isinstance(request, ForgetFraction)
        if self.each and not isinstance(request, ForgetClasses):
            raise BadInput(
                "--each takes the --classes one at a time; for a --fraction there is --draws."
            )
        if self.draws < 1 or (self.draws > 1 and not is_fraction):
            raise BadInput(
                "--draws is a number of random fractions, at least 1, and needs --fraction; "
                f"got {self.draws}."
            )

    def requests(self, request: Request, seed: int) -> list[tuple[Request, int]]:
        """Return the requests that a trial runs on, with their seeds."""
        if self.each and isinstance(request, ForgetClasses):
            return [(ForgetClasses([name]), seed) for name in request.classes]
        return [(request, seed + draw) for draw in range(self.draws)]


@dataclass(frozen=True, eq=False)
class Search:
    """The trials of a search, and the preset that was written unless every trial failed."""

    name: str
    """The name of the method."""
    method: Method
    """The preset that the search started from."""
    options: TuneOptions
    file: Path
    trials: list[Trial] = field(default_factory=list)
    """All that ended; after Ctrl-C fewer than the budget."""

    @property
    def is_complete(self) -> bool:
        """Whether the search was not interrupted."""
        return len(self.trials) == self.options.budget

    @property
    def failure(self) -> str:
        """Why the last trial failed, if every trial failed; else ""."""
        return (self.trials[-1].error or "") if best(self.trials).error else ""

    @property
    def changes(self) -> Settings:
        """The settings of the best trial that differ from those of the start."""
        return changes(self.method, best(self.trials))

    def write(self, request: str, scenario: Scenario) -> None:
        """Write every setting: on top of any preset, the file gives what the best trial ran with.

        request   in words
        """
        found = best(self.trials)
        settings = dataclasses.asdict(with_settings(self.method, found.settings))  # type: ignore[call-overload]
        values = {name: value for name, value in settings.items() if value is not None}
        unset = [name for name, value in settings.items() if value is None]
        if unset:
            values[UNSET] = unset
        values["source"] = {
            "from": "search",
            "objective": found.objective,
            "trials": len(self.trials),
            "date": datetime.now(UTC).date().isoformat(),
        }
        if self.options.each:
            request += ", each alone"
        if self.options.draws > 1:
            request += f", {self.options.draws} draws"
        data = scenario.data.name
        place = f"the holdout of {data}: {request}; seed {scenario.seed}"
        note = f"{len(self.trials)} trials on {place}, from the preset {self.options.start!r}."
        tables = {self.name: {data: {"tuned": {scenario.kind: values}}}}
        write_text(self.file, f"{FILE_MARK} {note}\n{tomli_w.dumps(tables)}")


def tune_method(
    name: str,
    forget: ForgetOptions,
    options: TuneOptions,
    engine: Engine = INLINE,
    display: Display | None = None,
) -> Search:
    """Search the settings of a method and write the best as a preset, as `duck tune` does.

    If Ctrl-C interrupts the search after its first trial, the best so far is written. If every
    trial failed, nothing is written.

    forget   the request, the original, and the file of the preset; without an original, one is
             trained
    """
    space_of(name)
    options.check(forget.request)
    if forget.protocol == "paper":
        raise BadInput(
            "--protocol paper has no holdout apart from the test data that are reported: "
            "tune with --protocol holdout."
        )
    display = display or Display()
    output = forget.output
    device = pick_device(output.device)
    data, source = load_data(forget, display)
    on_device = data.to(device)
    request = resolve_classes(forget.request, data)
    scenarios = [
        forget.original.scenario(part, on_device, seed, forget.protocol)
        for part, seed in options.requests(request, output.seed)
    ]
    check_search(scenarios, options.budget, options.objective)
    for finding in check_data(scenarios[0]):
        display.message(str(finding))
    kind = scenarios[0].kind
    file = output.out or Path(f"{name}-{data.name}-{kind}.toml")
    _check_file(file, output.overwrite)
    original = with_original(forget, data, source, device, display).original
    training = original.training(data, source)
    new_model = model_factory(training, on_device)
    model = original.load(training, on_device, device)
    retrained = None
    if options.objective != "aus":
        store = ArtifactStore(default_root(original.run))
        retrainings = [
            Retraining(scenario, model, new_model, training.recipe, training, store)
            for scenario in scenarios
        ]
        retrained = []
        with display.progress("retrained models") as report:
            for reference in in_order(engine(_retrain, list(enumerate(retrainings)))):
                retrained.append(reference)
                report(len(retrained), len(retrainings))
    method = preset(name, data.name, kind, len(data.train), options.start)
    search = Search(name, method, options, file)
    found = tune(
        method,
        Original(model, new_model, training.recipe, original.head_name()),
        scenarios,
        options.budget,
        retrained=retrained,
        objective=options.objective,
        engine=engine,
    )
    try:
        with display.progress(f"tune {name}") as report:
            for trial in found:
                search.trials.append(trial)
                report(len(search.trials), options.budget)
    except KeyboardInterrupt:
        if not search.trials:
            raise
    if not search.failure:
        search.write(describe(request, data.classes), scenarios[0])
    return search


def _retrain(task: tuple[int, Retraining]) -> tuple[int, nn.Module]:
    place, retraining = task
    return place, retraining.load_or_train(retraining.scenario.seed)


def _check_file(file: Path, overwrite: bool) -> None:
    """Raise an error if the file of the preset must not be written, before the search begins."""
    check_file_writable(file)
    if file.exists() and not overwrite:
        raise BadInput(f"{file} exists: choose another --out, or --overwrite it.")
    check_replaceable(file, FILE_MARK.encode())
