"""Execute the runs of a grid: train originals, unlearn, attack, study."""

import math
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from duck import files
from duck.artifacts import Artifact, ArtifactStore, Key
from duck.bench import studies
from duck.bench.attacks import Attacker
from duck.bench.grids import Attack, Cell, Grid, Measurement, Scenarios, Study, result_id
from duck.bench.outputs import Target, predict_target, read_target
from duck.bench.results import Result, Values
from duck.commands.options import model_factory
from duck.commands.train import Machine, TrainingFacts, load_or_train, machine_facts
from duck.errors import BadInput
from duck.experiment import Experiment
from duck.methods.base import METHODS, clone
from duck.metrics import Scores, evaluate
from duck.models.weights import copy_tensors, load_tensors
from duck.preparation import Preparations
from duck.runtime import Stopwatch, seeded
from duck.sample_ids import NO_SALT
from duck.scenarios import Debias
from duck.training import loop
from duck.types import Data, Recipe, Scenario
from duck.unlearning import notes, unlearn

MAX_ERROR_LENGTH = 400
"""Characters; errors of accelerators can fill a page."""


@dataclass(frozen=True)
class Job:
    """One run: a cell of a grid, an attack on its model or a study of it.

    Without a cell: the training of an original.
    """

    dataset: str
    experiment: Experiment
    cell: Cell | None = None
    measurement: Measurement | None = None

    @property
    def id(self) -> str:
        return result_id(self.experiment, self.measurement)

    @property
    def scenario(self) -> Scenarios | None:
        """What is removed; None for the training of an original."""
        return None if self.cell is None else self.cell.block.scenario

    def result(
        self, values: Values, train_samples: int, wall_seconds: float, alone: bool, machine: Machine
    ) -> Result:
        """Return the result of the job from what it measured, and how it ran."""
        cell = self.cell
        return Result(
            id=self.id,
            dataset=self.dataset,
            scenario=self.scenario,
            case=cell.case if cell else None,
            method=cell.method if cell else None,
            preset=cell.preset if cell else None,
            variant=cell.variant if cell else "",
            recipe=cell.block.recipe_preset if cell else "standard",
            attack=self.measurement if isinstance(self.measurement, Attack) else None,
            study=self.measurement if isinstance(self.measurement, Study) else None,
            train_samples=train_samples,
            wall_seconds=wall_seconds,
            alone=alone,
            experiment=self.experiment,
            **vars(machine),
            **vars(values),
        )

    def __str__(self) -> str:
        if self.cell is None:
            biased = " on biased data" if self.experiment.request else ""
            return f"{self.dataset}: train {self.experiment.training.model}{biased}"
        block = self.cell.block
        what = f"class {self.cell.case}" if block.classes else f"seed {self.cell.case}"
        if block.random_classes:
            what = f"{block.random_classes} classes, {what}"
        before = "" if self.measurement is None else f"{self.measurement.name} of "
        return f"{self.dataset}, {what}: {before}{self.cell.label} ({self.cell.preset})"


@dataclass
class PreparedOriginal:
    """An original model with its data and preparations, ready for requests."""

    data: Data
    model: nn.Module
    preparations: Preparations
    before: dict[tuple[str, int], tuple[Scenario, Scores]] = field(default_factory=dict)

    def scenario(self, experiment: Experiment) -> tuple[Scenario, Scores]:
        """Return the scenario of a request and the original's scores on it."""
        assert experiment.request is not None
        key = str(experiment.request), experiment.seed
        if key not in self.before:
            scenario = experiment.request(self.data, experiment.seed, experiment.protocol)
            self.before[key] = scenario, evaluate(self.model, scenario)
        return self.before[key]


class Runner:
    """Executes jobs on one device. An exception in a job becomes the error of its result."""

    def __init__(
        self,
        data: Mapping[str, Data],
        models: Path,
        device: torch.device,
        attacker: Attacker | None = None,
        *,
        compiled: bool = False,
        keep_models: bool = False,
        alone: bool = True,
    ) -> None:
        """Create a runner.

        compiled      compile retraining, whatever its recipe says
        keep_models   store unlearned models, too, by the ids of their experiments
        alone         nothing else uses the device, so that times can be compared
        """
        self.data, self.device, self.attacker = data, device, attacker
        self.compiled, self.keep_models = compiled, keep_models
        self.store = ArtifactStore(models)
        self.alone = alone
        self._moved: tuple[str, Data] | None = None
        self._prepared: tuple[Key, PreparedOriginal] | None = None
        self._failed: dict[Key, str] = {}
        """Originals whose training failed, and why: no other cell trains them again."""
        self._latest: tuple[str, nn.Module] | None = None
        """The id of the last unlearning and its model: a study of it usually comes next."""

    def is_stored(self, grid: Grid, experiment: Experiment) -> bool:
        """Return whether the attack or study of a grid needs no new model of an experiment."""
        kind: Literal["predictions", "unlearned"] = "predictions" if grid.attack else "unlearned"
        return Key.of_unlearned(kind, experiment) in self.store

    def __call__(self, job: Job) -> Result:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        begun = time.monotonic()
        trained: TrainingFacts | None = None
        try:
            if job.cell is None:
                _, trained = self._load_or_train(job)
                compiled = job.experiment.training.recipe.compile
                values = Values(scores=trained.scores, seconds=trained.seconds, compiled=compiled)
            else:
                values = self._execute(job)
        except Exception as error:
            values = Values(error=short_message(error))
        # The result of a stored original has the machine and the time of its training.
        machine = trained.machine if trained else machine_facts(self.device)
        wall_seconds = trained.seconds if trained else time.monotonic() - begun
        alone = trained.alone if trained else self.alone
        samples = len(self.data[job.dataset].train)
        return job.result(_checked(values), samples, wall_seconds, alone, machine)

    def _execute(self, job: Job) -> Values:
        """Return what the run of a cell measured."""
        if job.measurement is None:
            return self._unlearn(job)[0]
        return self._attack(job) if isinstance(job.measurement, Attack) else self._study(job)

    def _study(self, job: Job) -> Values:
        study, experiment = job.measurement, job.experiment
        assert isinstance(study, Study)
        if study.name == "bias":
            original = self._prepare(job)
            biased, data = original.model, original.data
            return studies.measure_bias_removal(biased, experiment, data, study.images)
        model = self._load_or_unlearn(job)
        scenario, _ = self._prepare(job).scenario(experiment)
        return studies.measure_density(model, scenario, study.dimensions)

    def _load_or_unlearn(self, job: Job) -> nn.Module:
        """Return the unlearned model of a job: the latest one, a stored one or a new one."""
        if self._latest is not None and self._latest[0] == job.experiment.id:
            return self._latest[1]
        stored = self.store.read(Key.of_unlearned("unlearned", job.experiment))
        if stored is None:
            return self._unlearn(job)[1]
        model = model_factory(job.experiment.training, self._data(job.dataset))()
        load_tensors(model, stored.tensors, "The stored model")
        return model.to(self.device).eval()

    def _attack(self, job: Job) -> Values:
        assert self.attacker is not None
        assert job.cell is not None
        if job.measurement != self.attacker.attack:
            raise BadInput("The job and the attacker have different settings.")
        target = self._target(job)
        with Stopwatch(self.device) as stopwatch:
            values = self.attacker(target, job.cell.block.kind, job.experiment.seed)
        return replace(values, seconds=stopwatch.seconds)

    def _target(self, job: Job) -> Target:
        """Return the outputs of the model: stored ones, or those of a new model."""
        key = Key.of_unlearned("predictions", job.experiment)
        target = read_target(self.store, key)
        if target is None:
            self._unlearn(job)
            target = read_target(self.store, key)
        if target is None:
            raise BadInput(
                f"{job.dataset} has no test samples, which an attack needs, or the outputs of the "
                "model could not be stored."
            )
        return target

    def _unlearn(self, job: Job) -> tuple[Values, nn.Module]:
        prepared, experiment = self._prepare(job), job.experiment
        scenario, before = prepared.scenario(experiment)
        training = experiment.training
        assert experiment.method is not None
        # Retraining has the full recipe; for a few epochs compilation costs more than it saves.
        is_retraining = METHODS.name_of(experiment.method) == "retrained"
        compiled = is_retraining and (training.recipe.compile or self.compiled)
        outcome = unlearn(
            experiment.method,
            prepared.model,
            scenario,
            new_model=model_factory(training, prepared.data),
            recipe=replace(training.recipe, compile=compiled),
            original=before,
            preparations=prepared.preparations,
        )
        self._latest = experiment.id, outcome.model
        values = Values(
            scores=asdict(outcome.scores),
            original=asdict(before),
            seconds=outcome.seconds,
            prepare_seconds=outcome.prepare_seconds,
            compiled=compiled,
            forget_samples=outcome.forget_samples,
            processed=outcome.processed,
            status=outcome.status,
            kept_accuracy=outcome.kept_accuracy,
            notes=[*notes(scenario, outcome), *self._store(experiment, outcome.model, scenario)],
        )
        return values, outcome.model

    def _store(self, experiment: Experiment, model: nn.Module, scenario: Scenario) -> list[str]:
        """Store outputs and weights. A full disk does not cost the result: return a note."""
        try:
            target = predict_target(model, scenario)
            if target is not None:
                self.store.write(Key.of_unlearned("predictions", experiment), target)
            if self.keep_models:
                digest = experiment.request_digest(NO_SALT)  # no grid names sample ids
                unlearned = Artifact(copy_tensors(model), {}, digest)
                self.store.write(Key.of_unlearned("unlearned", experiment), unlearned)
        except files.WRITE_ERRORS as error:
            return [f"It could not be kept for attacks and analyses: {files.reason(error)}."]
        return []

    def _prepare(self, job: Job) -> PreparedOriginal:
        key = Key.of_original(job.experiment)
        if self._prepared is None or self._prepared[0] != key:
            self._prepared = self._latest = None  # frees the one before
            model, _ = self._load_or_train(job)
            data = self._data(job.dataset)
            _warm_up(model, data, self.device)
            preparations = Preparations(self.store, job.experiment.training)
            self._prepared = key, PreparedOriginal(data, model, preparations)
        return self._prepared[1]

    def _data(self, name: str) -> Data:
        """Return a data set on the device; only one at a time is held there."""
        if self._moved is None or self._moved[0] != name:
            self._moved = None
            self._moved = name, self.data[name].to(self.device)
        return self._moved[1]

    def _load_or_train(self, job: Job) -> tuple[nn.Module, TrainingFacts]:
        """Return the original and its facts: the stored one, or one trained now."""
        data = self._data(job.dataset)
        if isinstance(job.experiment.request, Debias):
            data = job.experiment.request(data, job.experiment.seed).data
        key = Key.of_original(job.experiment)
        if key in self._failed:
            raise BadInput(f"Its original could not be trained: {self._failed[key]}")
        try:
            return load_or_train(self.store, job.experiment, data, self.device, alone=self.alone)
        except Exception as error:
            self._failed[key] = short_message(error)
            raise


def _checked(values: Values) -> Values:
    """Return the values as those of a failed run if a score is NaN or infinite."""
    wrong = [name for name, value in values.scores.items() if not math.isfinite(value or 0.0)]
    if not wrong:
        return values
    return replace(values, scores={}, error=f"Not a number: {', '.join(wrong)}.")


def _warm_up(model: nn.Module, data: Data, device: torch.device) -> None:
    """Train briefly on a GPU: the first training of a process spends seconds on loading kernels."""
    if device.type == "cuda":
        first_samples = data.train.take(torch.arange(min(2048, len(data.train))))
        recipe = Recipe(epochs=1, batch_size=256, augment=data.augment)
        loop.train(clone(model), first_samples, recipe, seeded(0, "warm-up"))


def short_message(error: Exception) -> str:
    """Return one line without folders: results are shared, and paths are private."""
    message = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_ERROR_LENGTH]
    return re.sub(r"(?<![\w./])(?:/[^\s/:'\"]+)+/([^\s/:'\"]+)", r"\1", message)
