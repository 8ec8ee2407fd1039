"""duck train: train an original model and store it as a run."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from duck import runs
from duck.artifacts import ArtifactStore, Key, default_root
from duck.checks import check_model_code
from duck.cli.console import emit, percent, print_table, say, training_progress
from duck.cli.exit_codes import DONE
from duck.cli.inputs import (
    DataFlags,
    GivenFlags,
    RunFlags,
    apply_flags,
    load_config,
    parse,
    read_flags,
    recipe_for_help,
)
from duck.errors import BadInput
from duck.experiment import Experiment, Training, fingerprint
from duck.methods.presets import RecipeName, default_recipe
from duck.models import MODELS
from duck.originals import load_or_train
from duck.runtime import distributed, is_first, pick_device
from duck.training.loop import check_recipe
from duck.types import Data, Recipe

DATA_FLAGS = ("--data", "--image-size", "--mean", "--std")


@dataclass
class TrainFlags:
    """Train a model on a data set and store it as a run.

    If it is interrupted or killed, the same command resumes after the last finished epoch and ends
    with the same weights. Several GPUs: torchrun --nproc-per-node N -m duck train ...
    """

    source: DataFlags
    run: RunFlags
    recipe: Recipe
    model: str = "resnet18"
    """A name from `duck list models`, or your own package.module:function."""
    recipe_preset: RecipeName = "standard"
    """The recipe that the flags below change: standard, or that of the DUCK paper (200 epochs;
    CIFAR and Tiny-ImageNet)."""
    config: Path | None = None
    """An experiment as `duck show RUN --toml` prints it: data, model, recipe, seed. Flags change
    its values."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a --config names. Its code
    can do anything."""


def main(argv: list[str]) -> int:
    given = read_flags(argv)
    config = load_config(given)
    default = _default(given) if config is None else _from_config(config)
    args = parse(TrainFlags, argv, "train", default)
    if ":" not in args.model:
        MODELS[args.model]  # an unknown name is an error before the data are read
    is_trusted = args.trust_model_code or "--model" in given
    check_model_code(args.model, str(args.config), is_trusted)
    check_recipe(args.recipe)
    with distributed(args.run.device) as device:
        data = args.source.load()
        if config is not None and given.keys().isdisjoint(DATA_FLAGS):
            _check_data(config, args.config, data)
        recipe = default.recipe
        if config is None:
            facts = data.name, len(data.train), data.augment
            recipe = default_recipe(*facts, args.model, args.recipe_preset)
        recipe = apply_flags(args.recipe, given, recipe)
        folder = trained(data, args.source, args.run, args.model, recipe, pick_device(device))
        if is_first():
            _print_run(folder, args.run.json)
    return DONE


def _check_data(config: Experiment, file: Path | None, data: Data) -> None:
    """Raise an error if the data that were found under the name are not those of the config."""
    if config.training.fingerprint not in ("", fingerprint(data)):
        raise BadInput(
            f"The data are not those of {file}: the fingerprints differ. Name the data with --data "
            "to train on other ones."
        )


def _default(given: GivenFlags) -> TrainFlags:
    name = given.get("--data") or "digits"
    model = given.get("--model") or ("convnet" if name == "digits" else "resnet18")
    preset: RecipeName = "paper" if given.get("--recipe-preset") == "paper" else "standard"
    return TrainFlags(DataFlags(name), RunFlags(), recipe_for_help(name, model, preset), model)


def _from_config(config: Experiment) -> TrainFlags:
    training = config.training
    source = DataFlags(
        training.data, image_size=training.image_size, mean=training.mean, std=training.std
    )
    return TrainFlags(source, RunFlags(seed=training.seed), training.recipe, training.model)


def trained(
    data: Data,
    source: DataFlags,
    run: RunFlags,
    model_name: str,
    recipe: Recipe,
    device: torch.device,
) -> Path:
    """Train a model unless its run exists already; return the folder of the run."""
    experiment = Experiment(_training(data, source, model_name, recipe, run.seed), seed=run.seed)
    folder = run.out or runs.default_folder(experiment)
    with runs.reserve(folder, experiment, run.overwrite) as exists:
        if exists:
            say(f"{folder} already holds this run; --overwrite trains it again.")
        else:
            _train(data, source, run, experiment, folder, device)
    return folder


def _train(
    data: Data,
    source: DataFlags,
    run: RunFlags,
    experiment: Experiment,
    folder: Path,
    device: torch.device,
) -> None:
    training = experiment.training
    checkpoint = runs.unfinished(folder, experiment.id) / "checkpoint.pt"
    if checkpoint.exists() and is_first():
        say(f"Resuming from {checkpoint}.")
    store = ArtifactStore(default_root(folder.parent))
    if Key.of_original(experiment) in store and not run.overwrite and is_first():
        say("This model was trained before and is reused; --overwrite trains it again.")
    data = data.to(device)
    with training_progress(f"train {training.model} on {data.name}", quiet=not is_first()) as watch:
        model, facts = load_or_train(
            store,
            experiment,
            data,
            device,
            renew=run.overwrite,
            report=watch,
            checkpoint=checkpoint,
        )
    if is_first():
        record = runs.Run(
            experiment,
            facts.scores,
            facts.seconds,
            _samples(data),
            source=source.source(folder),
            environment=facts.environment,
            created=facts.created,
        )
        runs.save(record, model, folder, run.overwrite)
        shutil.rmtree(checkpoint.parent, ignore_errors=True)


def _training(
    data: Data, source: DataFlags, model_name: str, recipe: Recipe, seed: int
) -> Training:
    return Training(
        data.name,
        model_name,
        recipe,
        seed,
        source.image_size,
        source.mean,
        source.std,
        fingerprint(data),
    )


def _samples(data: Data) -> dict[str, int]:
    test = 0 if data.test is None else len(data.test)
    return {
        "train": len(data.train),
        "test": test - len(data.holdout),
        "holdout": len(data.holdout),
    }


def _print_run(folder: Path, as_json: bool) -> None:
    run = runs.load(folder)
    training = run.experiment.training
    if as_json:
        result = {
            "run": str(folder),
            "model": training.model,
            "data": training.data,
            "scores": run.scores,
            "seconds": run.seconds,
        }
        emit(result)
    else:
        accuracies = map(percent, run.scores.values())
        row = [str(folder), *accuracies, f"{run.seconds:.1f}"]
        print_table(["run", "train %", "test %", "seconds"], [row])
