"""How to repeat a run: its experiment as a file, and the commands that read the file."""

import shlex
from dataclasses import replace
from pathlib import Path

from duck.data import DATASETS, SMALL_IMAGES
from duck.experiment import to_toml
from duck.report.records import StoredRun
from duck.scenarios import ForgetSamples

EXPERIMENT_FILE = "experiment.toml"


def experiment_toml(stored: StoredRun) -> str:
    """Return the experiment as TOML, without sample ids and without earlier requests.

    The ids are left out because they can name persons: the user passes the list with --ids.
    Earlier requests come with --run.
    """
    experiment = replace(stored.run.experiment, earlier=())
    if isinstance(experiment.request, ForgetSamples):
        experiment = replace(experiment, request=ForgetSamples(()))
    return to_toml(experiment)


def reproduce_commands(stored: StoredRun) -> list[str]:
    """Return the commands that repeat the run.

    Folders are named by their last part only, because a full path can name a person.
    """
    experiment = stored.run.experiment
    training = experiment.training
    ids = ["--ids", "ids.txt"] if isinstance(experiment.request, ForgetSamples) else []
    forget = ["--config", EXPERIMENT_FILE, *ids, "--out", "again"]
    if experiment.earlier:
        earlier_run = Path(stored.run.original_run or "EARLIER").name
        return [_command("forget", "--run", earlier_run, *forget)]
    if training.weights:
        # The model was trained elsewhere.
        data = _data_flags(stored)[1:] or [training.data]
        model = ["--model", training.model, "--weights", "WEIGHTS", "--data", *data]
        return [_command("forget", *model, *_pixel_flags(stored), *forget)]
    train = ["--config", EXPERIMENT_FILE, *_data_flags(stored), "--out", "original"]
    return [_command("train", *train), _command("forget", "--run", "original", *forget)]


def _data_flags(stored: StoredRun) -> list[str]:
    training = stored.run.experiment.training
    source = stored.run.source
    if training.data not in DATASETS:
        return ["--data", Path(source.get("data") or training.data).name]
    if source.get("root") and training.data not in SMALL_IMAGES:
        return ["--root", Path(source["root"] or "data").name]
    return []


def _pixel_flags(stored: StoredRun) -> list[str]:
    """Return the image size and normalisation that a model from elsewhere was trained with."""
    training = stored.run.experiment.training
    size = (training.image_size,) if training.image_size else ()
    flags = []
    for flag, values in (
        ("--image-size", size),
        ("--mean", training.mean),
        ("--std", training.std),
    ):
        if values:
            flags += [flag, *map(str, values)]
    return flags


def _command(*words: str) -> str:
    return shlex.join(["duck", *words])
