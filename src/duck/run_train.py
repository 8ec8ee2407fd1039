"""Train an original model and store it as a run."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from duck import runs
from duck.artifacts import ArtifactStore, Key, default_root
from duck.display import Display
from duck.errors import BadInput
from duck.experiment import Experiment, fingerprint
from duck.methods.presets import RecipeName, default_recipe
from duck.models import MODELS
from duck.options import DataOptions, RunOptions
from duck.originals import load_or_train
from duck.runtime import distributed, is_first, pick_device
from duck.training.loop import check_recipe
from duck.types import Data, Recipe


@dataclass(frozen=True)
class TrainOptions:
    """Which model is trained on which data, and where the run is stored."""

    source: DataOptions
    model: str = "resnet18"
    """A name from `duck list models`, or your own package.module:function."""
    recipe: Recipe | RecipeName = "standard"
    """How to train, or the name of a default recipe for the data and the model."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the recipe that differ from those above."""
    output: RunOptions = field(default_factory=RunOptions)
    fingerprint: str = ""
    """Fingerprint that the data must have."""

    def build_recipe(self, data: Data) -> Recipe:
        """Return the recipe for the data."""
        recipe = self.recipe
        if isinstance(recipe, str):
            facts = data.name, len(data.train), data.augment
            recipe = default_recipe(*facts, self.model, recipe)
        recipe = replace(recipe, **self.changes)
        check_recipe(recipe)
        return recipe


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
    if ":" not in options.model:
        MODELS[options.model]  # an unknown name is an error before the data are read
    with distributed(options.output.device) as device:
        display = display if display and is_first() else Display()
        with display.progress(f"reading {options.source.data}") as progress:
            data = options.source.load(progress=progress)
        if options.fingerprint not in ("", fingerprint(data)):
            raise BadInput(
                "The data are not those of the experiment: the fingerprints differ. Name the data "
                "with --data to train on other ones."
            )
        folder = train_on(data, options, pick_device(device), display)
        return TrainRun(folder, is_first())


def train_on(data: Data, options: TrainOptions, device: torch.device, display: Display) -> Path:
    """Train a model on loaded data unless its run is stored; return the folder of the run."""
    output = options.output
    recipe = options.build_recipe(data)
    training = options.source.training(data, options.model, recipe, output.seed)
    experiment = Experiment(training, seed=output.seed)
    folder = output.out or runs.default_folder(experiment)
    with runs.reserve(folder, experiment, output.overwrite) as exists:
        if exists:
            display.message(f"{folder} already holds this run; --overwrite trains it again.")
        else:
            _train(data.to(device), options, experiment, folder, display)
    return folder


def _train(
    data: Data, options: TrainOptions, experiment: Experiment, folder: Path, display: Display
) -> None:
    overwrite = options.output.overwrite
    checkpoint = runs.unfinished(folder, experiment.id) / "checkpoint.pt"
    if checkpoint.exists():
        display.message(f"Resuming from {checkpoint}.")
    store = ArtifactStore(default_root(folder.parent))
    if Key.of_original(experiment) in store and not overwrite:
        display.message("This model was trained before and is reused; --overwrite trains it again.")
    with display.training(f"train {options.model} on {data.name}") as watch:
        model, facts = load_or_train(
            store,
            experiment,
            data,
            data.train.device,
            renew=overwrite,
            report=watch,
            checkpoint=checkpoint,
        )
    if not is_first():
        return
    record = runs.Run(
        experiment,
        facts.scores,
        facts.seconds,
        _samples(data),
        source=options.source.source(folder),
        environment=facts.environment,
        created=facts.created,
    )
    runs.save(record, model, folder, overwrite)
    shutil.rmtree(checkpoint.parent, ignore_errors=True)


def _samples(data: Data) -> dict[str, int]:
    test = 0 if data.test is None else len(data.test)
    return {
        "train": len(data.train),
        "test": test - len(data.holdout),
        "holdout": len(data.holdout),
    }
