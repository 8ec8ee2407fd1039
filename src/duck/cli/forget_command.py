"""duck forget: a stored or foreign model, without what it was told to forget."""

import hashlib
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from duck import store
from duck.cli.console import emit, number, percent, say, table, watching
from duck.cli.exits import DONE, FAILED
from duck.cli.inputs import DataFlags, RunFlags, fingerprint, parse, peek, settled
from duck.config import Experiment, Training
from duck.errors import BadInput
from duck.experiment import Outcome, unlearn
from duck.methods import METHODS
from duck.methods.base import Method, Preset, default_recipe, preset
from duck.models import build
from duck.models.weights import load_weights
from duck.runtime import distributed, is_first, pick_device
from duck.scenarios import ForgetClasses, ForgetFraction, ForgetSamples, Request
from duck.types import Data, Protocols, Scenario


@dataclass
class Forget:
    """Make a model forget whole classes, a random share, or chosen samples.

    The model is a stored run (--run), or your own: --model package.module:function --weights FILE --data IMAGES.
    Say who: --classes 3 5, or --fraction 0.1, or --ids FILE with one id a line.
    Below are the settings of the chosen --method, with its preset for these data.
    """

    source: DataFlags
    output: RunFlags
    run: Path | None = None
    """A run of `duck train`: brings model, weights and data."""
    model: str | None = None
    """Your own model builder, package.module:function, or a name from `duck list models`."""
    weights: Path | None = None
    """Its weights: .safetensors, or a .pt state_dict."""
    head: str | None = None
    """Name of the classifier head inside the model; found by a probe where not given."""
    classes: tuple[str, ...] = ()
    """Class indices or names."""
    fraction: float | None = None
    """Share of the training samples, drawn with the seed."""
    ids: Path | None = None
    """File with one id a line."""
    method: str = "duck"
    """A name from `duck list methods`."""
    preset: Preset = "tuned"
    """paper: the paper's settings; tuned: with what was found on holdout data."""
    protocol: Protocols = "holdout"
    """holdout: stop rules look at a fifth of the test data, which is not reported; paper: whole test set in both roles."""


def main(argv: list[str]) -> int:
    method = peek(argv, "--method", "duck")
    cls, kind = METHODS[method], "class" if peek(argv, "--classes") else "samples"
    run = peek(argv, "--run")
    record = store.read_record(Path(run)) if run else None
    name = record["experiment"]["training"]["data"] if record else peek(argv, "--data", "digits")
    chosen: Any = peek(argv, "--preset", "tuned")
    shown = preset(method, name, kind, name=chosen) if kind in cls.scenarios else cls()
    flags = make_dataclass("Forget", [("settings", cls)], bases=(Forget,), kw_only=True)
    flags.__doc__ = Forget.__doc__
    default = flags(source=_data_flags(record, name), output=RunFlags(), settings=shown)
    args = parse(flags, argv, "forget", default)
    request = _request(args)
    with distributed(args.output.device) as device:
        return _run(args, request, shown, pick_device(device))


def _data_flags(record: dict[str, Any] | None, name: str) -> DataFlags:
    if record is None:
        return DataFlags(name)
    source = record["source"]
    return DataFlags(source["data"], Path(source["root"]), image_size=record["experiment"]["training"]["image_size"])


def _request(args: Any) -> Request:
    given = [name for name, value in (("--classes", args.classes), ("--fraction", args.fraction), ("--ids", args.ids)) if value]
    if len(given) != 1:
        raise BadInput(f"Say who is to be forgotten with one of --classes, --fraction and --ids; given: {', '.join(given) or 'none'}.")
    if args.classes:
        return ForgetClasses(int(name) if name.isdigit() else name for name in args.classes)
    return ForgetFraction(args.fraction) if args.fraction else ForgetSamples.from_file(args.ids)


def _run(args: Any, request: Request, shown: Method, device: torch.device) -> int:
    if bool(args.run) == bool(args.model):
        raise BadInput("Give the model as --run RUN, or as --model BUILDER --weights FILE --data DATA.")
    if args.model and not args.weights:
        raise BadInput(f"--model {args.model} also needs --weights FILE: an untrained model has nothing to forget.")
    data = args.source.load()
    training = _training(args, data)
    scenario = request(data, args.output.seed, args.protocol)
    method = settled(args.settings, shown, preset(args.method, data.name, scenario.kind, len(data.train), args.preset))
    experiment = Experiment(training, request, method, args.output.seed, args.protocol)
    folder = args.output.out or Path("runs") / experiment.id
    if store.check_free(folder, experiment.id, args.output.overwrite):
        say(f"{folder} already holds this run; --overwrite makes it anew.")
        return tell(folder, args.output.json)
    model = build(training.model, data.num_classes, data.train.shape)
    load_weights(model, args.weights or args.run / store.WEIGHTS)
    outcome = _unlearn(args, method, model.to(device), replace(scenario, data=data.to(device)), training)
    if not is_first():
        return DONE
    run = store.record(experiment, scenario, outcome, original_run=str(args.run) if args.run else None, source=args.source.source())
    store.save(run, outcome.model, folder, args.output.overwrite)
    return tell(folder, args.output.json)


def _training(args: Any, data: Data) -> Training:
    if args.run:
        made = store.load(args.run).experiment
        if made.request is not None:
            raise BadInput(f"{args.run} is already an unlearned model; give --run its original, {store.load(args.run).original_run}.")
        if made.training.fingerprint != fingerprint(data):
            raise BadInput(
                f"The data are not those that {args.run} was trained on: the fingerprints differ. Name them with --data, --root."
            )
        return made.training
    digest = hashlib.blake2b(_bytes(args.weights), digest_size=16).hexdigest()
    recipe = default_recipe(data.name, len(data.train), data.augment)
    return Training(data.name, args.model, recipe, 0, args.source.image_size, fingerprint(data), digest)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"The weights {path} cannot be read: {error.strerror}.") from error


def _unlearn(args: Any, method: Method, model: nn.Module, scenario: Scenario, training: Training) -> Outcome:
    def new_model() -> nn.Module:
        return build(training.model, scenario.data.num_classes, scenario.data.train.shape)

    with watching(f"{args.method} on {training.data}", quiet=not is_first()) as watch:
        return unlearn(method, model, scenario, new_model=new_model, recipe=training.recipe, head=args.head, watch=watch)


def tell(folder: Path, as_json: bool) -> int:
    """Print a stored unlearning; exit code 1 if it forgot nothing."""
    run = store.load(folder)
    line = store.row(folder, run)
    if as_json:
        emit(line)
    else:
        for note in run.notes:
            print(note)
        rows = [[name, *_cells(scores), seconds] for name, scores, seconds in _pairs(run, line)]
        table(["", "AUS", *(f"{name} %" for name in store.COLUMNS[1:]), "seconds"], rows)
        print(
            f"{line['method']} forgot {line['scenario']}: {line['processed']} of {line['forget_samples']} samples processed. Run: {folder}"
        )
    return FAILED if any(note.startswith("Nothing was forgotten") for note in run.notes) else DONE


def _pairs(run: store.Run, line: dict[str, Any]) -> list[tuple[str, dict[str, float | None], str]]:
    return [("original", run.original or {}, ""), (line["method"], run.scores, f"{run.seconds:.2f}")]


def _cells(scores: dict[str, float | None]) -> list[str]:
    return [number(scores.get("aus")), *(percent(scores.get(name)) for name in store.COLUMNS[1:])]
