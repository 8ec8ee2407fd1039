"""duck train: train an original model and store it as a run."""

from dataclasses import dataclass, replace
from pathlib import Path

from duck import runs
from duck.checks import check_model_code
from duck.cli.console import CONSOLE, emit, percent, print_table
from duck.cli.exit_codes import DONE
from duck.cli.inputs import RunFlags, load_config, recipe_for_help
from duck.cli.parsing import given_values, parse, read_flags
from duck.commands.options import DataOptions
from duck.commands.train import TrainOptions, train_run
from duck.methods.presets import RecipeName
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
    model: str | None = None
    """A name from `duck list models`, or your own package.module:function. Default: convnet for
    digits, resnet18 for other data."""
    recipe_preset: RecipeName = "standard"
    """The recipe that the flags below change: standard, or that of the DUCK paper (200 epochs;
    CIFAR and Tiny-ImageNet)."""
    config: Path | None = None
    """An experiment as `duck show RUN --toml` prints it: data, model, recipe, seed. Flags change
    its values."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a --config names. This
    runs third-party code."""


def main(argv: list[str]) -> int:
    given = read_flags(argv)
    config = load_config(given)
    if config is None:
        known = TrainOptions()
        recipe = recipe_for_help(given)
    else:
        known = TrainOptions.of(config.training)
        recipe = config.training.recipe
    run = RunFlags(seed=known.output.seed)
    default = TrainFlags(known.source, run, recipe, known.model)
    args = parse(TrainFlags, argv, "train", default)
    is_trusted = args.trust_model_code or "--model" in given
    check_model_code(args.model or "", str(args.config), is_trusted)
    has_own_data = not given.keys().isdisjoint(DATA_FLAGS)
    options = replace(
        known,
        source=args.source,
        model=args.model,
        recipe=args.recipe_preset if config is None else known.recipe,
        changes=given_values(args.recipe, given),
        output=args.run,
        fingerprint="" if has_own_data else known.fingerprint,
    )
    trained = train_run(options, CONSOLE)
    if trained.is_first:
        _print_run(trained.folder, args.run.json)
    return DONE


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
