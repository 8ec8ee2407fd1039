"""How to make a run again: the experiment as a file, and the commands that read it."""

import shlex
from dataclasses import replace
from pathlib import Path

from duck.data import DATASETS
from duck.experiment import to_toml
from duck.report.records import Stored
from duck.scenarios import ForgetSamples

FILE = "experiment.toml"


def experiment_file(stored: Stored) -> str:
    """As TOML. Ids that were to be forgotten are left out: the request's own list is to be given. Earlier requests come with --run."""
    experiment = replace(stored.run.experiment, earlier=())
    if isinstance(experiment.request, ForgetSamples):
        experiment = replace(experiment, request=ForgetSamples(()))
    return to_toml(experiment)


def commands(stored: Stored) -> list[str]:
    """From nothing to this run. Folders are named by their last part alone: a report travels, and paths tell of persons."""
    experiment, source = stored.run.experiment, stored.run.source
    made = experiment.training
    data = [] if made.data in DATASETS else ["--data", Path(source.get("data") or made.data).name]
    if made.data in DATASETS and source.get("root") and made.data != "digits":
        data = ["--root", Path(source["root"] or "data").name]
    who = ["--ids", "ids.txt"] if isinstance(experiment.request, ForgetSamples) else []
    if experiment.earlier:
        return [
            _line(
                "forget",
                "--run",
                Path(stored.run.original_run or "EARLIER").name,
                "--config",
                FILE,
                *who,
                "--out",
                "again",
            )
        ]
    if made.weights:
        foreign = [
            "--model",
            made.model,
            "--weights",
            "WEIGHTS",
            "--data",
            *(data[1:] or [made.data]),
            *_pixels(stored),
        ]
        return [_line("forget", *foreign, "--config", FILE, *who, "--out", "again")]
    train = _line("train", "--config", FILE, *data, "--out", "original")
    return [train, _line("forget", "--run", "original", "--config", FILE, *who, "--out", "again")]


def _pixels(stored: Stored) -> list[str]:
    """How a model from elsewhere saw them."""
    made = stored.run.experiment.training
    words = ["--image-size", str(made.image_size)] if made.image_size else []
    for flag, values in (("--mean", made.mean), ("--std", made.std)):
        words += [flag, *map(str, values)] if values else []
    return words


def _line(*words: str) -> str:
    return shlex.join(["duck", *words])
