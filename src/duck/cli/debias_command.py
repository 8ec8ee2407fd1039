"""duck debias: plant a bias, unlearn it, and measure on unseen images whether it is gone."""

import shlex
import warnings
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from duck import files
from duck.analysis import bias
from duck.analysis.attribution import Attribution, IncompleteAttribution, require_captum
from duck.artifacts import ArtifactStore, default_root
from duck.cli.console import emit, percent, print_table, say, training_progress, write
from duck.cli.exit_codes import DONE
from duck.cli.inputs import (
    DataFlags,
    RunFlags,
    apply_flags,
    format_flags,
    parse,
    read_flags,
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

DEFAULT_COUNT = 200


@dataclass
class DebiasFlags:
    """Mislabel images with a coloured square, train on them, and forget them with DUCK.

    Images of class --true get a square and the label --wrong. As many images of class --wrong get
    the square and keep their label. The result is compared with a retraining on corrected labels:
    the predictions on unseen images of class --true with the square, and the mean SHAP value of the
    square for --wrong. With --out: bias.json, the SHAP maps and the three models, for `duck
    report`.
    """

    source: DataFlags
    output: RunFlags
    recipe: Recipe
    true: str = "1"
    """Class of the mislabelled images: its name, or an index if no class has that name."""
    wrong: str = "9"
    """Their wrong label."""
    count: int | None = None
    """Images of each of the two classes that get the square. Default: 200, or a quarter of the
    smaller class if that is less."""
    patch: int = 4
    """Pixels a side of the square."""
    colour: tuple[int, ...] = field(default=(255, 0, 0))
    """Colour of the square, a value in 0..255 for each channel; on images of one channel the
    brightest of them."""
    model: str = "resnet18"
    """A name from `duck list models`, or your own package.module:function."""
    preset: Preset = "tuned"
    """The settings of DUCK for class removal: those of the paper, or tuned on holdout data."""
    shap: int = bias.IMAGES
    """Number of unseen images for the SHAP values; 0: none, and captum is not needed."""


def main(argv: list[str]) -> int:
    given = read_flags(argv)
    name = given.get("--data") or "digits"
    default = DebiasFlags(
        DataFlags(name),
        RunFlags(),
        recipe_for_help(name),
        model="convnet" if name == "digits" else "resnet18",
    )
    args = parse(DebiasFlags, argv, "debias", default)
    _check(args)
    with files.lock(args.output.out) if args.output.out else nullcontext():
        data = args.source.load().to(pick_device(args.output.device))
        usual = default_recipe(data.name, len(data.train), data.augment, args.model)
        result = _study(args, data, apply_flags(args.recipe, given, usual), usual)
        if args.output.json:
            emit(result)
        else:
            _print_result(result)
    return DONE


def _check(args: DebiasFlags) -> None:
    """Raise errors that are known before the data are read."""
    if args.shap < 0:
        raise BadInput(f"--shap is a number of images, 0 for none; got {args.shap}.")
    if args.shap:
        require_captum()
    if ":" not in args.model:
        MODELS[args.model]
    out = args.output.out
    if out is None:
        return
    if out.exists() and not args.output.overwrite:
        raise BadInput(f"{out} exists: choose another --out, or --overwrite it.")
    files.finish_replacing(out, bias.FILES)
    if out.exists() and not (out / bias.RESULT).exists():
        raise BadInput(f"{out} exists and is not a bias removal: choose another --out.")
    check_writable(out / bias.RESULT)


def _study(args: DebiasFlags, data: Data, recipe: Recipe, usual: Recipe) -> dict[str, Any]:
    seed, device = args.output.seed, data.train.device
    count = _default_count(args, data) if args.count is None else args.count
    debias = Debias(*_classes(args, data), count, args.patch, args.colour)
    scenario = debias(data, seed)
    method = bias.debias_method(debias, data, args.preset)
    debias.unseen(scenario)  # without unseen images an error, before anything is trained
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
        removal = bias.remove_bias(
            debias,
            scenario,
            biased,
            method,
            new_model=partial(build, args.model, data.num_classes, data.train.shape),
            recipe=recipe,
            watch=watch,
        )
    attributions = _explain(args, debias, scenario, removal, seed) if args.shap else {}
    record = bias.make_record(
        debias,
        scenario,
        removal,
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
        _store(args.output.out, result, removal, attributions)
    return result


def _command(args: DebiasFlags, debias: Debias, recipe: Recipe, usual: Recipe) -> str:
    """Return the command that repeats this one.

    Folders are named by their last part alone: a report is shared, and paths are private.
    """
    source = args.source
    is_named = source.data in DATASETS
    has_own_root = is_named and source.root != Path("data")
    recipe_changes = {
        name: value for name, value in asdict(recipe).items() if value != getattr(usual, name)
    }
    flags = {
        "data": source.data if is_named else Path(source.data).name,
        "root": source.root.name if has_own_root else None,
        "image_size": source.image_size,
        "mean": source.mean or None,
        "std": source.std or None,
        "true": args.true,
        "wrong": args.wrong,
        "count": debias.count,
        "patch": debias.patch,
        "colour": debias.colour,
        "model": args.model,
        **recipe_changes,
        "preset": args.preset,
        "shap": args.shap,
        "seed": args.output.seed,
        "device": args.output.device if args.output.device != "auto" else None,
        "out": "again",
    }
    return shlex.join(["duck", "debias", *format_flags(flags)])


def _classes(args: DebiasFlags, data: Data) -> tuple[int | str, int | str]:
    return class_from_word(args.true, data), class_from_word(args.wrong, data)


def _default_count(args: DebiasFlags, data: Data) -> int:
    labels = Debias(*_classes(args, data)).classes(data)
    quarters = [int((data.train.labels == label).sum()) // 4 for label in labels]
    return min(DEFAULT_COUNT, *quarters)


def _explain(
    args: DebiasFlags, debias: Debias, scenario: Scenario, removal: bias.RemovalOutcome, seed: int
) -> dict[str, Attribution]:
    say("SHAP values of the square ...")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IncompleteAttribution)
        attributions = bias.explain_models(debias, scenario, removal.models, args.shap, seed)
    for warning in caught:
        say(str(warning.message))
    return attributions


def _store(
    out: Path,
    result: dict[str, Any],
    removal: bias.RemovalOutcome,
    attributions: dict[str, Attribution],
) -> None:
    with files.replacing(out, bias.FILES) as new:
        for name, model in removal.models.items():
            save_weights(model, new / f"{name}.safetensors")
        if attributions:
            np.savez_compressed(new / bias.MAPS, **bias.first_maps(attributions))
        files.write_json(new / bias.RESULT, result, indent=None)
    maps = "the SHAP maps, " if attributions else ""
    say(f"Stored in {out}: {bias.RESULT}, {maps}three models.")


def _print_result(result: dict[str, Any]) -> None:
    true, wrong, side = result["true"], result["wrong"], result["patch"]
    write(
        f"{result['data']}, seed {result['seed']}: {result['count']} images of class {true} with a "
        f"{side} x {side} square, called {wrong}."
    )
    write(f"Unseen images of class {true} with the square, n = {result['n']} [95 % interval]:")
    columns = [
        "model",
        f"called {wrong} %",
        f"called {true} %",
        f"{true} without square, right %",
        "test %",
        f"square's mean SHAP for {wrong}",
    ]
    print_table(columns, _rows(result))
    for pair, test in (result["shap"] or {"tests": {}})["tests"].items():
        write(
            f"SHAP {pair}: p = {test['p']:.2g} over {test['n']} images (two-sided Wilcoxon; least "
            f"p for so many {test['least_p']:.2g})"
        )
    before = percent(result["forget"]["biased"])
    after = percent(result["forget"]["duck"])
    write(f"A_f against the wrong label: {before} % -> {after} %")
    for note in result["notes"]:
        write(note)
    seconds = {"training": result["train_seconds"], **result["seconds"]}
    write(", ".join(f"{name} {value:.2f} s" for name, value in seconds.items()))


def _rows(result: dict[str, Any]) -> list[list[str]]:
    shap = result["shap"]
    rows = []
    for name, shares in result["called"].items():
        intervals = [
            _format_share(shares[part]) for part in ("wrong", "right", "right_without_patch")
        ]
        mean = f"{shap['mean'][name]:+.4f} ± {shap['std'][name]:.4f}" if shap else "-"
        rows.append([name, *intervals, percent(shares["test"]), mean])
    return rows


def _format_share(share: dict[str, Any]) -> str:
    low, high = share["interval"]
    return f"{percent(share['share'])} [{100 * low:.1f}, {100 * high:.1f}]"
