"""duck debias: plant a bias, train on it, unlearn it, and see on unseen images whether it is gone."""

import shlex
import warnings
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from duck import files
from duck.analysis import bias
from duck.analysis.attribution import Attribution, IncompleteAttribution, require_captum
from duck.artifacts import ArtifactStore, default_root
from duck.cli.console import emit, percent, print_table, say, training_progress, write
from duck.cli.inputs import (
    DataFlags,
    RunFlags,
    apply_flags,
    format_flags,
    parse,
    peek,
    recipe_for_help,
)
from duck.data import DATASETS
from duck.errors import BadInput
from duck.experiment import Experiment, Training, fingerprint, to_dict
from duck.methods.presets import Preset, default_recipe
from duck.models import MODELS, build
from duck.models.weights import save_weights
from duck.originals import load_or_train
from duck.records import to_plain
from duck.runs import check_writable, environment
from duck.runtime import pick_device
from duck.scenarios import Debias, class_from_word
from duck.types import Data, Recipe, Scenario

COUNT = 200


@dataclass
class DebiasFlags:
    """Mislabel images that carry a coloured square, train on them, forget them with DUCK, and compare with a corrected retraining.

    Images of class --true get a square and the label --wrong; as many images of class --wrong get the square and keep their label.
    Shown is what the models call unseen images of class --true with the square, and the square's mean SHAP value for --wrong.
    With --out: bias.json, the SHAP maps and the three models, for `duck report`.
    """

    source: DataFlags
    output: RunFlags
    recipe: Recipe
    true: str = "1"
    """Class that the mislabelled images show: its name; a number is an index where no class has that name."""
    wrong: str = "9"
    """Class they are called."""
    count: int | None = None
    """Images of each of the two classes that get the square; 200, or a quarter of the smaller class where that is less."""
    patch: int = 4
    """Pixels a side of the square."""
    colour: tuple[int, ...] = field(default=(255, 0, 0))
    """Of the square, a value in 0..255 a channel; on images of one channel the brightest of them."""
    model: str = "resnet18"
    """A name from `duck list models`, or your own package.module:function."""
    preset: Preset = "tuned"
    """DUCK's settings for class removal: the paper's, or tuned on holdout data."""
    shap: int = bias.IMAGES
    """Unseen images whose SHAP values are taken; 0: none, and captum is not needed."""


def main(argv: list[str]) -> int:
    name = peek(argv, "--data", "digits")
    default = DebiasFlags(
        DataFlags(name),
        RunFlags(),
        recipe_for_help(name),
        model="convnet" if name == "digits" else "resnet18",
    )
    args = parse(DebiasFlags, argv, "debias", default)
    if args.shap < 0:
        raise BadInput(f"--shap is a number of images, 0 for none; got {args.shap}.")
    if args.shap:
        require_captum()
    if ":" not in args.model:
        MODELS[args.model]  # an unknown name is an error before the data are read
    if args.output.out and args.output.out.exists() and not args.output.overwrite:
        raise BadInput(f"{args.output.out} exists: choose another --out, or --overwrite it.")
    if args.output.out:
        _check_place(args.output.out)
    with files.lock(args.output.out) if args.output.out else nullcontext():
        return _run(args, argv)


def _check_place(out: Path) -> None:
    files.finish_replacing(out, bias.FILES)
    if out.exists() and not (out / bias.RESULT).exists():
        raise BadInput(f"{out} exists and is not a bias removal: choose another --out.")
    check_writable(out / bias.RESULT)


def _run(args: DebiasFlags, argv: list[str]) -> int:
    data = args.source.load().to(pick_device(args.output.device))
    usual = default_recipe(data.name, len(data.train), data.augment, args.model)
    result = _study(args, data, apply_flags(args.recipe, argv, usual), usual)
    if args.output.json:
        emit(result)
    else:
        _tell(result)
    return 0


def _study(args: DebiasFlags, data: Data, recipe: Recipe, usual: Recipe) -> dict[str, Any]:
    seed, device = args.output.seed, data.train.device
    count = _count(args, data) if args.count is None else args.count
    debias = Debias(*_classes(args, data), count, args.patch, args.colour)
    scenario = debias(data, seed)
    method = bias.debias_method(debias, data, args.preset)
    debias.unseen(
        scenario
    )  # without unseen images there is nothing to show: an error before anything is trained
    source, out = args.source, args.output.out
    training = Training(
        data.name,
        args.model,
        recipe,
        seed,
        source.image_size,
        source.mean,
        source.std,
        fingerprint(data),
    )
    store = ArtifactStore(default_root(out.parent) if out else None)
    with training_progress(f"train {args.model} on biased {data.name}") as watch:
        biased, facts = load_or_train(
            store, Experiment(training, debias, seed=seed), scenario.data, device, report=watch
        )
    with training_progress("duck, then retrain on corrected labels") as watch:
        freed = bias.remove_bias(
            debias, scenario, biased, method,
            new_model=lambda: build(args.model, data.num_classes, data.train.shape), recipe=recipe, watch=watch,
        )  # fmt: skip
    attributions = _explained(args, debias, scenario, freed, seed) if args.shap else {}
    record = bias.make_record(
        debias,
        scenario,
        freed,
        attributions,
        train_seconds=round(facts.seconds, 2),
        preset=args.preset,
        method=to_dict(method),
        model=args.model,
        recipe=asdict(recipe),
        fingerprint=training.fingerprint,
        environment=environment(device),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=_command(args, debias, recipe, usual),
    )
    result = to_plain(record)
    if args.output.out:
        _store(args.output.out, result, freed, attributions)
    return result


def _command(args: DebiasFlags, debias: Debias, recipe: Recipe, usual: Recipe) -> str:
    """Which does the same again. Folders are named by their last part alone: a report travels, and paths tell of persons."""
    source, known = args.source, args.source.data in DATASETS
    planted = {
        "true": args.true,
        "wrong": args.wrong,
        "count": debias.count,
        "patch": debias.patch,
        "colour": debias.colour,
    }
    flags = {
        "data": source.data if known else Path(source.data).name,
        "root": source.root.name if known and source.root != Path("data") else None,
        "image_size": source.image_size,
        "mean": source.mean or None,
        "std": source.std or None,
        **planted,
        "model": args.model,
        **{name: value for name, value in asdict(recipe).items() if value != getattr(usual, name)},
        "preset": args.preset,
        "shap": args.shap,
        "seed": args.output.seed,
        "device": args.output.device if args.output.device != "auto" else None,
        "out": "again",
    }
    return shlex.join(["duck", "debias", *format_flags(flags)])


def _classes(args: DebiasFlags, data: Data) -> tuple[int | str, int | str]:
    return class_from_word(args.true, data), class_from_word(args.wrong, data)


def _count(args: DebiasFlags, data: Data) -> int:
    both = Debias(*_classes(args, data)).classes(data)
    return min(COUNT, *(int((data.train.labels == label).sum()) // 4 for label in both))


def _explained(
    args: DebiasFlags, debias: Debias, scenario: Scenario, freed: bias.RemovalOutcome, seed: int
) -> dict[str, Attribution]:
    say("SHAP values of the square ...")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IncompleteAttribution)
        found = bias.explain_models(debias, scenario, freed.models, args.shap, seed)
    for warning in caught:
        say(str(warning.message))
    return found


def _store(
    out: Path,
    result: dict[str, Any],
    freed: bias.RemovalOutcome,
    attributions: dict[str, Attribution],
) -> None:
    with files.replacing(out, bias.FILES) as new:
        for name, model in freed.models.items():
            save_weights(model, new / f"{name}.safetensors")
        if attributions:
            np.savez_compressed(new / bias.MAPS, **bias.first_maps(attributions))
        files.write_json(new / bias.RESULT, result, indent=None)
    say(f"Stored in {out}: {bias.RESULT}, {'the SHAP maps, ' if attributions else ''}three models.")


def _tell(result: dict[str, Any]) -> None:
    true, wrong, side = result["true"], result["wrong"], result["patch"]
    write(
        f"{result['data']}, seed {result['seed']}: {result['count']} images of class {true} with a {side} x {side} square, called {wrong}."
    )
    write(f"Unseen images of class {true} with the square, n = {result['n']} [95 % interval]:")
    shap, rows = result["shap"], []
    for name, said in result["called"].items():
        mean = f"{shap['mean'][name]:+.4f} ± {shap['std'][name]:.4f}" if shap else "-"
        rows.append(
            [
                name,
                *(_interval(said[part]) for part in ("wrong", "right", "right_without_patch")),
                percent(said["test"]),
                mean,
            ]
        )
    columns = [
        f"called {wrong} %",
        f"called {true} %",
        f"{true} without square, right %",
        "test %",
        f"square's mean SHAP for {wrong}",
    ]
    print_table(["model", *columns], rows)
    for pair, test in (shap["tests"] if shap else {}).items():
        write(
            f"SHAP {pair}: p = {test['p']:.2g} over {test['n']} images (two-sided Wilcoxon; least p for so many {test['least_p']:.2g})"
        )
    write(
        f"A_f against the wrong label: {percent(result['forget']['biased'])} % -> {percent(result['forget']['duck'])} %"
    )
    for note in result["notes"]:
        write(note)
    seconds = {"training": result["train_seconds"], **result["seconds"]}
    write(", ".join(f"{name} {value:.2f} s" for name, value in seconds.items()))


def _interval(said: dict[str, Any]) -> str:
    low, high = said["interval"]
    return f"{percent(said['share'])} [{100 * low:.1f}, {100 * high:.1f}]"
