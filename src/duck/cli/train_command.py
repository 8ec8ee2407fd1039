"""duck train: train an original model and store it as a run."""

from dataclasses import dataclass
from pathlib import Path

from duck import runs
from duck.checks import check_model_code
from duck.cli.console import CONSOLE, emit, percent, print_table
from duck.cli.exit_codes import DONE
from duck.cli.inputs import RunFlags, load_config, recipe_for_help
from duck.cli.parsing import GivenFlags, given_values, parse, read_flags
from duck.commands.options import DataOptions
from duck.commands.train import TrainOptions, train_run
from duck.data import SMALL_IMAGES
from duck.experiment import Experiment
from duck.methods.presets import RecipeName
from duck.training.loop import check_recipe
from duck.types import Recipe

DATA_FLAGS = ("--data", "--image-size", "--mean", "--std")


@dataclass
class TrainFlags:
    """Train a model on a data set and store it as a run.

    If it is interrupted or killed, the same command resumes after the last finished epoch and ends
    with the same weights. Several GPUs: torchrun --nproc-per-node N -m duck train ...
    """

    source: DataOptions
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
    check_model_code(args.model, str(args.config), args.trust_model_code or "--model" in given)
    check_recipe(args.recipe)
    is_same_data = config is not None and given.keys().isdisjoint(DATA_FLAGS)
    options = TrainOptions(
        args.source,
        args.model,
        config.training.recipe if config else args.recipe_preset,
        given_values(args.recipe, given),
        args.run,
        config.training.fingerprint if config and is_same_data else "",
    )
    trained = train_run(options, CONSOLE)
    if trained.is_first:
        _print_run(trained.folder, args.run.json)
    return DONE


def _default(given: GivenFlags) -> TrainFlags:
    name = given.get("--data") or "digits"
    model = given.get("--model") or ("convnet" if name in SMALL_IMAGES else "resnet18")
    preset: RecipeName = "paper" if given.get("--recipe-preset") == "paper" else "standard"
    return TrainFlags(DataOptions(name), RunFlags(), recipe_for_help(name, model, preset), model)


def _from_config(config: Experiment) -> TrainFlags:
    training = config.training
    source = DataOptions(
        training.data, image_size=training.image_size, mean=training.mean, std=training.std
    )
    return TrainFlags(source, RunFlags(seed=training.seed), training.recipe, training.model)


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
        accuracies = {f"{name} %": percent(score) for name, score in run.scores.items()}
        print_table([{"run": str(folder), **accuracies, "seconds": f"{run.seconds:.1f}"}])
