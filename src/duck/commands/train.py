"""Original models: trained once, read from the artifact store, and stored as runs."""

import resource
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from duck import runs
from duck.api import train
from duck.artifacts import ArtifactStore, Facts, Key, default_root
from duck.commands.options import DataOptions, RunOptions, default_model
from duck.display import Display
from duck.errors import BadInput
from duck.experiment import Experiment, Training, fingerprint
from duck.methods.presets import RecipeName, default_recipe
from duck.metrics import training_scores
from duck.models import MODELS, build
from duck.models.imported import source_digest
from duck.models.user_models import in_float32
from duck.records import Environment, structure, to_plain
from duck.runtime import Stopwatch, device_name, distributed, is_first, pick_device
from duck.training.loop import check_recipe
from duck.types import Data, Recipe, Report

GIB = 2**30


@dataclass(frozen=True)
class Machine:
    """What a run used: device, version, date and peak memory; no paths."""

    device: str
    torch: str
    date: str
    device_gib: float | None
    """None on a CPU."""
    host_gib: float


@dataclass(frozen=True)
class TrainingFacts:
    """When, where and how long an original was trained, and its scores."""

    scores: dict[str, float | None]
    seconds: float
    created: str
    environment: Environment
    machine: Machine
    alone: bool
    """Whether nothing else used the device, so that the time can be compared."""


def load_or_train(
    store: ArtifactStore,
    experiment: Experiment,
    data: Data,
    device: torch.device,
    *,
    alone: bool = False,
    renew: bool = False,
    report: Report | None = None,
    checkpoint: Path | None = None,
) -> tuple[nn.Module, TrainingFacts]:
    """Return the original of an experiment and its facts: the stored one, or one trained now.

    data        what it is trained on: the biased data for an experiment about a bias
    renew       train it in any case
    report, checkpoint   as for `duck.train`
    """
    training = experiment.training

    def train_now() -> tuple[nn.Module, Facts]:
        with Stopwatch(device) as stopwatch:
            model = train(
                training.model,
                data,
                training.seed,
                training.recipe,
                device=str(device),
                report=report,
                checkpoint=checkpoint,
            )
        facts = TrainingFacts(
            # In a distributed training only the first process writes.
            scores=training_scores(in_float32(model), data) if is_first() else {},
            seconds=stopwatch.seconds,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            environment=runs.environment(device),
            machine=machine_facts(device),
            alone=alone,
        )
        return model, to_plain(facts)

    return store.get_or_train(
        Key.of_original(experiment),
        lambda: build(training.model, data.num_classes, data.train.shape),
        train_now,
        lambda facts: structure(facts, TrainingFacts),
        device=device,
        renew=renew,
    )


def machine_facts(device: torch.device) -> Machine:
    """Return what this process used until now."""
    unit = 1 if sys.platform == "darwin" else 1024
    on_gpu = device.type == "cuda"
    return Machine(
        device_name(device),
        str(torch.__version__),
        datetime.now(UTC).date().isoformat(),
        torch.cuda.max_memory_allocated(device) / GIB if on_gpu else None,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB,
    )


@dataclass(frozen=True)
class TrainOptions:
    """Which model is trained on which data, and where the run is stored."""

    source: DataOptions = field(default_factory=DataOptions)
    model: str | None = None
    """A name from `duck list models`, or your own package.module:function. Default: convnet for
    digits, resnet18 for other data."""
    recipe: Recipe | RecipeName = "standard"
    """How to train, or the name of a default recipe for the data and the model."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the recipe that differ from those above."""
    output: RunOptions = field(default_factory=RunOptions)
    fingerprint: str = ""
    """Fingerprint that the data must have."""

    @classmethod
    def of(cls, training: Training) -> Self:
        """Return the options that repeat a training."""
        source = DataOptions(
            training.data, image_size=training.image_size, mean=training.mean, std=training.std
        )
        output = RunOptions(seed=training.seed)
        return cls(
            source,
            training.model,
            training.recipe,
            output=output,
            fingerprint=training.fingerprint,
        )

    def check(self) -> None:
        """Raise errors that are known before the data are read."""
        if self.model is not None and ":" not in self.model:
            MODELS[self.model]
        recipe = self.recipe if isinstance(self.recipe, Recipe) else Recipe()
        check_recipe(replace(recipe, **self.changes))

    def training(self, data: Data) -> Training:
        """Return the training of the model on the data."""
        model = self.model or default_model(data.name)
        recipe = self.recipe
        if isinstance(recipe, str):
            recipe = default_recipe(data.name, len(data.train), data.augment, model, recipe)
        recipe = replace(recipe, **self.changes)
        check_recipe(recipe)
        return self.source.training(data, model, recipe, self.output.seed)


@dataclass(frozen=True)
class TrainRun:
    """A stored original model."""

    folder: Path
    is_first: bool = True
    """False in the other processes of a distributed training, which store nothing."""


def train_run(options: TrainOptions, display: Display | None = None) -> TrainRun:
    """Train a model and store it, as `duck train` does; a run that is stored already stays.

    After an interruption the same options resume after the last finished epoch.
    """
    options.check()
    with distributed(options.output.device) as device:
        display = display if display and is_first() else Display()
        with display.progress(f"reading {options.source.name}") as progress:
            data = options.source.load(progress=progress)
        if options.fingerprint not in ("", fingerprint(data)):
            raise BadInput(
                "The data are not those of the experiment: the fingerprints differ. Name the data "
                "with --data to train on other ones."
            )
        folder = train_on(data, options, pick_device(device), display)
        return TrainRun(folder, is_first())


def _checkpoint(folder: Path, experiment: Experiment) -> Path:
    """Return the checkpoint of a training: for a user's own model, that of its present code."""
    parts = experiment.id, source_digest(experiment.training.model)
    return runs.unfinished(folder, "-".join(filter(None, parts))) / "checkpoint.pt"


def train_on(data: Data, options: TrainOptions, device: torch.device, display: Display) -> Path:
    """Train a model on loaded data unless its run is stored; return the folder of the run."""
    output = options.output
    training = options.training(data)
    experiment = Experiment(training, seed=output.seed)
    folder = output.out or runs.default_folder(experiment)
    with runs.reserve(folder, experiment, output.overwrite) as exists:
        if exists:
            display.message(f"{folder} already holds this run; --overwrite trains it again.")
            return folder
        checkpoint = _checkpoint(folder, experiment)
        if output.overwrite:
            shutil.rmtree(checkpoint.parent, ignore_errors=True)
        if checkpoint.exists():
            display.message(f"Resuming from {checkpoint}.")
        store = ArtifactStore(default_root(folder))
        if Key.of_original(experiment) in store and not output.overwrite:
            display.message(
                "This model was trained before and is reused; --overwrite trains it again."
            )
        with display.training(f"train {training.model} on {data.name}") as watch:
            model, facts = load_or_train(
                store,
                experiment,
                data.to(device),
                device,
                renew=output.overwrite,
                report=watch,
                checkpoint=checkpoint,
            )
        if is_first():
            test = 0 if data.test is None else len(data.test)
            holdout = len(data.holdout)
            record = runs.Run(
                experiment,
                facts.scores,
                facts.seconds,
                {"train": len(data.train), "test": test - holdout, "holdout": holdout},
                source=options.source.source(folder),
                environment=facts.environment,
                created=facts.created,
            )
            runs.save(record, model, folder, output.overwrite)
            shutil.rmtree(checkpoint.parent, ignore_errors=True)
    return folder
