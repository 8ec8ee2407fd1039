"""Plant a bias, unlearn it, and measure on unseen images how much of it is left."""

import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from duck import files
from duck.analysis.attribution import Attribution, require_captum
from duck.analysis.bias import (
    FILES,
    IMAGES,
    MAPS,
    RESULT,
    RemovalRecord,
    debias_method,
    explain_models,
    first_maps,
    make_record,
    remove_bias,
)
from duck.artifacts import ArtifactStore, default_root
from duck.commands.analyse import attribution_warnings
from duck.commands.options import DataOptions, RunOptions, model_factory
from duck.commands.train import TrainOptions, load_or_train
from duck.data import DATASETS
from duck.display import Display
from duck.errors import BadInput
from duck.experiment import Experiment, to_dict
from duck.methods.presets import Preset
from duck.models.weights import save_weights
from duck.printable import path_from_here
from duck.records import to_plain
from duck.runs import check_writable, environment
from duck.runtime import pick_device
from duck.scenarios import Debias, class_from_word
from duck.types import Data, Original

DEFAULT_COUNT = 200
REPEATED_OUT = "again"
"""Folder in the command that repeats a bias removal."""


@dataclass(frozen=True)
class BiasOptions:
    """A bias, the model that learns it, and how it is removed and measured."""

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
    model: str | None = None
    """A name from `duck list models`, or your own package.module:function. Default: convnet for
    digits, resnet18 for other data."""
    preset: Preset = "tuned"
    """The settings of DUCK for class removal: those of the paper, or tuned on holdout data."""
    shap: int = IMAGES
    """Number of unseen images for the SHAP values; 0: none, and captum is not needed."""

    def request(self, data: Data) -> Debias:
        """Return the bias for the data."""
        debias = Debias(
            class_from_word(self.true, data),
            class_from_word(self.wrong, data),
            patch=self.patch,
            colour=self.colour,
        )
        count = self.count
        if count is None:
            labels = debias.classes(data)
            quarters = [int((data.train.labels == label).sum()) // 4 for label in labels]
            count = min(DEFAULT_COUNT, *quarters)
        return replace(debias, count=count)


@dataclass(frozen=True)
class DebiasOptions:
    """Which bias is removed on which data, and where the result is stored."""

    source: DataOptions
    bias: BiasOptions = field(default_factory=BiasOptions)
    output: RunOptions = field(default_factory=RunOptions)
    recipe_changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the recipe that differ from the default ones for the data and the model."""

    @property
    def training(self) -> TrainOptions:
        """How the biased model is trained."""
        return TrainOptions(
            self.source, self.bias.model, changes=self.recipe_changes, output=self.output
        )

    def check(self) -> None:
        """Raise errors that are known before the data are read."""
        if self.bias.shap < 0:
            raise BadInput(f"--shap is a number of images, 0 for none; got {self.bias.shap}.")
        if self.bias.shap:
            require_captum()
        self.training.check()
        out = self.output.out
        if out is None:
            return
        if out.exists() and not self.output.overwrite:
            raise BadInput(f"{out} exists: choose another --out, or --overwrite it.")
        files.finish_replacing(out, FILES)
        if out.exists() and not (out / RESULT).exists():
            raise BadInput(f"{out} exists and is not a bias removal: choose another --out.")
        check_writable(out / RESULT)

    def command(self, count: int) -> str:
        """Return the command that repeats this bias removal in the working folder."""
        source, device = self.source, self.output.device
        settings = {
            **asdict(source),
            "data": source.name,
            "root": path_from_here(source.folder),
            "download": None,
            **asdict(self.bias),
            "count": count,
            **self.recipe_changes,
            "seed": self.output.seed,
            "device": device if device != "auto" else None,
            "out": REPEATED_OUT,
        }
        if source.name not in DATASETS:
            settings |= {"data": path_from_here(Path(source.name)), "root": None}
        words = ["duck", "debias"]
        for name, value in settings.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            elif value is not None and value != ():
                values = value if isinstance(value, tuple | list) else (value,)
                words += [f"--{flag}", *map(str, values)]
        return shlex.join(words)


def debias_run(options: DebiasOptions, display: Display | None = None) -> RemovalRecord:
    """Remove a planted bias as `duck debias` does; with `output.out`, store record and models."""
    options.check()
    out = options.output.out
    with files.lock(out) if out else nullcontext():
        return _debias(options, display or Display())


def _debias(options: DebiasOptions, display: Display) -> RemovalRecord:
    with display.progress(f"reading {options.source.name}") as progress:
        data = options.source.load(progress=progress).to(pick_device(options.output.device))
    training = options.training.training(data)
    seed, device, out = options.output.seed, data.train.device, options.output.out
    debias = options.bias.request(data)
    scenario = debias(data, seed)
    method = debias_method(debias, data, options.bias.preset)
    debias.unseen(scenario)  # without unseen images an error, before anything is trained
    store = ArtifactStore(default_root(out))
    with display.training(f"train {training.model} on biased {data.name}") as watch:
        biased, facts = load_or_train(
            store, Experiment(training, debias, seed=seed), scenario.data, device, report=watch
        )
    with display.training("duck, then retrain on corrected labels") as watch:
        original = Original(biased, model_factory(training, data), training.recipe)
        removal = remove_bias(debias, scenario, original, method, watch)
    attributions: dict[str, Attribution] = {}
    if options.bias.shap:
        display.message("SHAP values of the square ...")
        with attribution_warnings(display.message):
            attributions = explain_models(debias, scenario, removal.models, options.bias.shap, seed)
    record = make_record(
        debias,
        scenario,
        removal,
        attributions,
        train_seconds=round(facts.seconds, 2),
        preset=options.bias.preset,
        method=to_dict(method),
        model=training.model,
        recipe=asdict(training.recipe),
        fingerprint=training.fingerprint,
        environment=environment(device),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=options.command(debias.count),
    )
    if out:
        with files.replacing(out, FILES) as new:
            for name, model in removal.models.items():
                save_weights(model, new / f"{name}.safetensors")
            if attributions:
                np.savez_compressed(new / MAPS, **first_maps(attributions))
            files.write_json(new / RESULT, to_plain(record), indent=None)
        maps = "the SHAP maps, " if attributions else ""
        display.message(f"Stored in {out}: {RESULT}, {maps}three models.")
    return record
