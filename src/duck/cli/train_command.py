"""duck train: an original model, stored as a run; the same command after a kill goes on where it was."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from duck import runs
from duck.artifacts import ArtifactStore, Key, default_root
from duck.cli.console import emit, percent, print_table, say, training_progress
from duck.cli.inputs import (
    DataFlags,
    RunFlags,
    apply_flags,
    check_model_code,
    given_flags,
    load_config,
    parse,
    peek,
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


@dataclass
class Train:
    """Train a model on a data set and store it as a run.

    Interrupted or killed, the same command goes on from the last finished epoch and ends with the same weights.
    Several GPUs: torchrun --nproc-per-node N -m duck train ...
    """

    source: DataFlags
    run: RunFlags
    recipe: Recipe
    model: str = "resnet18"
    """A name from `duck list models`, or your own package.module:function."""
    recipe_preset: RecipeName = "standard"
    """The recipe that the flags below change: ours, or the DUCK paper's (200 epochs; CIFAR and
    Tiny-ImageNet)."""
    config: Path | None = None
    """An experiment as `duck show RUN --toml` prints it: data, model, recipe, seed. Flags go on top."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a --config names. Its code can do anything."""


def main(argv: list[str]) -> int:
    config = load_config(argv)
    default = _default(argv) if config is None else _of_experiment(config)
    args = parse(Train, argv, "train", default)
    if ":" not in args.model:
        MODELS[args.model]  # an unknown name is an error before the data are read
    check_model_code(
        args.model, str(args.config), args.trust_model_code or "--model" in given_flags(argv)
    )
    check_recipe(args.recipe)
    with distributed(args.run.device) as device:
        data = args.source.load()
        if config is not None and not given_flags(argv) & {
            "--data",
            "--image-size",
            "--mean",
            "--std",
        }:
            _check_data(config, args.config, data)
        real = default.recipe
        if config is None:
            facts = data.name, len(data.train), data.augment
            real = default_recipe(*facts, args.model, args.recipe_preset)
        return _run(
            replace(args, recipe=apply_flags(args.recipe, argv, real)), data, pick_device(device)
        )


def _check_data(config: Experiment, file: Path | None, data: Data) -> None:
    """Raise an error where the config is about other data than those that were found under the same name."""
    if config.training.fingerprint not in ("", fingerprint(data)):
        raise BadInput(
            f"The data are not those of {file}: the fingerprints differ. Name the data with --data to train on other ones."
        )


def _default(argv: list[str]) -> Train:
    name = peek(argv, "--data", "digits")
    model = peek(argv, "--model", "convnet" if name == "digits" else "resnet18")
    asked = peek(argv, "--recipe-preset", "standard")
    preset: RecipeName = "paper" if asked == "paper" else "standard"
    return Train(DataFlags(name), RunFlags(), recipe_for_help(name, model, preset), model)


def _of_experiment(config: Experiment) -> Train:
    made = config.training
    source = DataFlags(made.data, image_size=made.image_size, mean=made.mean, std=made.std)
    return Train(source, RunFlags(seed=made.seed), made.recipe, made.model)


def _run(args: Train, data: Data, device: torch.device) -> int:
    folder = trained(data, args.source, args.run, args.model, args.recipe, device)
    return _tell(folder, args.run.json) if is_first() else 0


def trained(
    data: Data,
    source: DataFlags,
    run: RunFlags,
    model_name: str,
    recipe: Recipe,
    device: torch.device,
) -> Path:
    """The run of this training, made now unless it is there already."""
    experiment = Experiment(_training(data, source, model_name, recipe, run.seed), seed=run.seed)
    folder = run.out or runs.default_folder(experiment)
    with runs.reserve(folder, experiment, run.overwrite) as there:
        if there:
            say(f"{folder} already holds this run; --overwrite makes it anew.")
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
        say(f"Going on from {checkpoint}.")
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


def _tell(folder: Path, as_json: bool) -> int:
    run = runs.load(folder)
    if as_json:
        made = run.experiment.training
        emit(
            {
                "run": str(folder),
                "model": made.model,
                "data": made.data,
                "scores": run.scores,
                "seconds": run.seconds,
            }
        )
    else:
        print_table(
            ["run", "train %", "test %", "seconds"],
            [[str(folder), *map(percent, run.scores.values()), f"{run.seconds:.1f}"]],
        )
    return 0
