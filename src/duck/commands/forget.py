"""Make a model forget and store the unlearned model as a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from duck import runs
from duck.artifacts import ArtifactStore, default_root
from duck.commands.options import (
    DataOptions,
    OriginalOptions,
    RunOptions,
    model_factory,
    resolve_classes,
)
from duck.data.checks import Finding, check_data
from duck.display import Display
from duck.errors import BadInput
from duck.experiment import EarlierRequest, Experiment, Training
from duck.methods.automatic import AUTO, configure
from duck.methods.base import METHODS, Method, check_kind
from duck.methods.presets import Preset, preset
from duck.metrics import check_limit
from duck.preparation import Preparations
from duck.runtime import distributed, is_first, pick_device
from duck.scenarios import Request, add_copies
from duck.types import Data, Original, Protocols, Recipe, Scenario
from duck.unlearning import Outcome, note_guessed_recipe, unlearn


@dataclass(frozen=True)
class ForgetOptions:
    """What a model is to forget, by which method, and where the run is stored."""

    request: Request
    original: OriginalOptions
    source: DataOptions = field(default_factory=DataOptions)
    """The data. Default: those of the run of the original."""
    output: RunOptions = field(default_factory=RunOptions)
    method: str | Method = AUTO
    """A name from `duck list methods`, with its preset for the data, or a configured method.
    `auto`: the method that fits the request."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the method that differ from those above."""
    preset: Preset = "tuned"
    presets: Path | None = None
    """A file of `duck tune`, on top of the presets."""
    protocol: Protocols = "holdout"
    max_accuracy_loss: float | None = None
    """Share of accuracy on unseen samples that may be lost. None: the larger of 5 points and 3
    standard errors."""
    with_copies: bool = False
    """Also forget training samples that are exact copies of those to be forgotten."""
    earlier: tuple[EarlierRequest, ...] = ()
    """Requests that the original must have forgotten, if any are given."""

    def check(self) -> None:
        """Raise errors that are known before the data are read."""
        self.original.check()
        check_limit(self.max_accuracy_loss)
        has_preset = self.presets is not None or self.preset != "tuned"
        if self.method == AUTO and (self.settings or has_preset):
            raise BadInput(
                "Presets and settings belong to a method: add --method duck, or another name from "
                "`duck list methods`."
            )
        if has_preset and not isinstance(self.method, str):
            raise BadInput(
                "The method of --config has every setting: leave --preset and --presets out, or "
                "name the method with --method."
            )
        if self.earlier and self.earlier != self.original.earlier():
            raise BadInput(
                "The experiment follows earlier requests: give --run the run that forgot them, and "
                "no other."
            )
        if self.source.data is None and self.original.run is None:
            raise BadInput("The data are missing: only a run says where its data are.")

    def build_method(self, prepared: "PreparedRequest") -> tuple[Method, tuple[str, ...]]:
        """Return the method with its settings, and a note where it was chosen automatically."""
        scenario = prepared.scenario
        method = self.method
        why: tuple[str, ...] = ()
        if method == AUTO:
            method, why = configure(AUTO, scenario, prepared.recipe)
        elif isinstance(method, str):
            check_kind(method, scenario.kind, len(scenario.retain) > 0)
            facts = scenario.data.name, scenario.kind, len(prepared.data.train)
            method = preset(method, *facts, self.preset, self.presets)
        return replace(method, **self.settings), why  # type: ignore[type-var]


@dataclass(frozen=True)
class ForgetRun:
    """A stored unlearning, judged by the limit on the loss of accuracy."""

    folder: Path
    run: runs.Run
    findings: Sequence[Finding] = ()
    """Problems of the data, with sample ids. The notes of the run have them without ids."""
    is_first: bool = True
    """False in the other processes of a distributed training, which store nothing."""


def forget_run(options: ForgetOptions, display: Display | None = None) -> ForgetRun:
    """Make a model forget, and store the unlearned model, as `duck forget` does.

    A run that is stored already is not executed again unless `overwrite` is set.
    """
    options.check()
    with distributed(options.output.device) as device:
        display = display if display and is_first() else Display()
        prepared = prepare(options, pick_device(device), display)
        method, why = options.build_method(prepared)
        experiment = prepared.experiment(method)
        folder = options.output.out or runs.default_folder(experiment)
        with runs.reserve(folder, experiment, options.output.overwrite) as exists:
            if exists:
                display.message(f"{folder} already holds this run; --overwrite runs it again.")
                return ForgetRun(folder, runs.judge(runs.load(folder), options.max_accuracy_loss))
            for finding in prepared.findings:
                display.message(str(finding))
            outcome = prepared.unlearn(method, folder, display)
            outcome = replace(outcome, method_notes=(*outcome.method_notes, *why))
            return prepared.store(outcome, method, folder, options.output.overwrite)


@dataclass(frozen=True, eq=False)
class PreparedRequest:
    """A request with its data and its original: ready to run a method."""

    options: ForgetOptions
    source: DataOptions
    data: Data
    """All data; those of `scenario` are without what earlier requests forgot."""
    base: Experiment
    """The experiment, still without a method."""
    scenario: Scenario
    copies: str
    """How many copies were added to the request."""
    device: torch.device

    @property
    def training(self) -> Training:
        """How the original was trained."""
        return self.base.training

    @property
    def request(self) -> Request:
        """The request, with its classes as records store them."""
        assert self.base.request is not None
        return self.base.request

    @property
    def recipe(self) -> Recipe | None:
        """The recipe of the original; None: not known."""
        return None if self.training.weights else self.training.recipe

    @cached_property
    def original(self) -> Original:
        """The model before unlearning."""
        given = self.options.original
        return Original(
            given.load(self.training, self.data, self.device),
            model_factory(self.training, self.data),
            self.training.recipe,
            given.head_name(),
        )

    def experiment(self, method: Method) -> Experiment:
        """Return the experiment of a method on this request."""
        return replace(self.base, method=method)

    @cached_property
    def findings(self) -> list[Finding]:
        """Problems of the data."""
        return check_data(self.scenario)

    def unlearn(self, method: Method, folder: Path, display: Display) -> Outcome:
        """Run a method; what it prepares is stored next to the folder."""
        data = self.scenario.data.to(self.device)
        with display.training(f"{METHODS.name_of(method)} on {self.training.data}") as watch:
            return unlearn(
                method,
                self.original,
                replace(self.scenario, data=data),
                watch=watch,
                preparations=Preparations(ArtifactStore(default_root(folder)), self.training),
                max_accuracy_loss=self.options.max_accuracy_loss,
            )

    def add_notes(self, outcome: Outcome, method: Method) -> Outcome:
        """Add what a reader must know about the request, the data and a model from elsewhere."""
        notes = [*filter(None, [self.copies]), *(finding.text for finding in self.findings)]
        notes += self.options.original.foreign_notes(self.training, self.data)
        outcome = replace(outcome, method_notes=(*outcome.method_notes, *notes))
        if not self.training.weights:
            return outcome
        return note_guessed_recipe(outcome, method, self.training.recipe)

    def store(
        self,
        outcome: Outcome,
        method: Method,
        folder: Path,
        overwrite: bool,
        keep: Sequence[str] = (),
    ) -> ForgetRun:
        """Write the run; in a distributed training only the first process does.

        keep   as for `runs.save`
        """
        noted = self.add_notes(outcome, method)
        places = self.options.original.places(folder, self.source)
        run = runs.record(self.experiment(method), self.scenario, noted, **places)
        if is_first():
            runs.save(run, noted.model, folder, overwrite, keep)
        return ForgetRun(folder, run, self.findings, is_first())


def prepare(options: ForgetOptions, device: torch.device, display: Display) -> PreparedRequest:
    """Load the data and apply the request to them."""
    data, source = load_data(options, display)
    return apply_request(options, data, source, device)


def load_data(options: ForgetOptions, display: Display) -> tuple[Data, DataOptions]:
    """Return the data and where they are."""
    original, source = options.original, options.source
    if original.run:
        source = source.completed(original.run)
    with display.progress(f"reading {source.name}") as progress:
        return source.load(original.splits_data(), progress), source


def apply_request(
    options: ForgetOptions, data: Data, source: DataOptions, device: torch.device
) -> PreparedRequest:
    """Apply the request to loaded data."""
    original = options.original
    seed, protocol = options.output.seed, options.protocol
    request = resolve_classes(options.request, data)
    training = original.training(data, source)
    scenario = original.scenario(request, data, seed, protocol)
    copies = ""
    if options.with_copies:
        request, copies = add_copies(request, scenario)
        scenario = original.scenario(request, data, seed, protocol)
    head = original.other_head(training, data, device)
    base = Experiment(training, request, None, seed, protocol, original.earlier(), head)
    return PreparedRequest(options, source, data, base, scenario, copies, device)
