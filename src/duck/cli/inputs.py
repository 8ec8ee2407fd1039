"""Flags that several commands share, and how they become data, recipes and settings."""

import dataclasses
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import tyro

from duck.checks import check_numbers
from duck.cli.console import progress_bar
from duck.data import DATASETS, load
from duck.engines import Engine, EngineName, create_engine
from duck.errors import BadInput
from duck.types import Data, Recipe

# `duck list` needs none of the experiments and runs.
if TYPE_CHECKING:
    from duck.experiment import Experiment
    from duck.methods.presets import RecipeName

T = TypeVar("T")
GivenFlags = dict[str, str]
"""Flags that the user has given, as the help spells them, each with the word after it."""


@dataclass
class DataFlags:
    """Where the data are."""

    data: str
    """digits, cifar10, cifar100, tiny-imagenet, a folder of class folders of images, or an .npz
    file."""
    root: Path = Path("data")
    """Folder that holds the named data sets."""
    download: bool = False
    """Download a named data set that is missing, and check its SHA-256."""
    image_size: int | None = None
    """Resize images to this many pixels a side."""
    mean: tuple[float, ...] = ()
    """Mean per channel, of pixels in 0..1, that your model was trained with. Default: the mean of
    the data."""
    std: tuple[float, ...] = ()
    """Standard deviation per channel, likewise."""

    def load(self, split: bool = True) -> Data:
        """Load the data.

        split   whether to split test data off if there are none. A model that was trained
                elsewhere has seen all of the data.
        """
        with progress_bar(f"reading {self.data}") as progress:
            return load(
                self.data,
                self.root,
                download=self.download,
                progress=progress,
                image_size=self.image_size,
                mean=self.mean,
                std=self.std,
                split=split,
            )

    def source(self, folder: Path) -> dict[str, str | None]:
        """Return the paths of the data, relative to the folder of a run."""
        from duck.runs import path_from

        data = self.data if self.data in DATASETS else path_from(folder, Path(self.data))
        return {"data": data, "root": path_from(folder, self.root)}


@dataclass
class RunFlags:
    """How to run, and where to put the result."""

    out: Path | None = None
    """Folder of the run. Default: runs/ID."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    overwrite: bool = False
    """Replace the run at --out, with its audits and analysis; other files in the folder stay."""
    json: bool = False
    """Print one JSON value to stdout instead of a table."""


@dataclass
class EngineFlags:
    """Where tasks execute."""

    engine: EngineName | None = None
    """inline (in this process), processes (of this machine) or ray (a cluster). Default: processes
    for several workers."""
    workers: int | None = None
    """Tasks at the same time. Default: 1."""
    address: str | None = None
    """Address of a running Ray cluster, such as auto. Without it --engine ray starts Ray here."""
    gpus_per_worker: float = 0.0
    """With --engine ray: the share of a GPU that each worker reserves."""

    def create(self) -> Engine:
        """Return the engine."""
        workers = 1 if self.workers is None else self.workers
        return create_engine(self.engine, workers, self.address, self.gpus_per_worker)


def parse(cls: type[T], argv: Sequence[str], command: str, default: T | None = None) -> T:
    """Fill a dataclass from flags. Flags of nested dataclasses have no prefix."""
    options: dict[str, Any] = {} if default is None else {"default": default}
    parsed: T = tyro.cli(
        cls, prog=f"duck {command}", args=list(argv), config=(tyro.conf.OmitArgPrefixes,), **options
    )
    check_numbers(parsed)
    return parsed


def read_flags(argv: Sequence[str]) -> GivenFlags:
    """Return the flags among the words, each with the word after it.

    Some flags decide which others there are, so their values are needed before `parse`.
    """
    given: GivenFlags = {}
    for word, next_word in pairwise([*argv, ""]):
        if word.startswith("--"):
            name, separator, value = word.partition("=")
            given.setdefault(name.replace("_", "-"), value if separator else next_word)
    return given


def load_config(given: GivenFlags) -> "Experiment | None":
    """Return the experiment of --config, whose values are the defaults of the flags."""
    from duck.experiment import from_toml

    file = given.get("--config")
    return from_toml(Path(file)) if file else None


def format_flags(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as words that `parse` reads; those that are None are left out."""
    words: list[str] = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, tuple | list):
            words += [f"--{flag}", *map(str, value)]
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return words


def recipe_for_help(data: str, model: str = "", name: "RecipeName" = "standard") -> Recipe:
    """Return the recipe that the help shows, before the data are read."""
    from duck.methods.presets import default_recipe

    has_no_augmentation = data == "digits" or Path(data).suffix == ".npz"
    samples = None if data in DATASETS else 0
    augment = "none" if has_no_augmentation else "crop-flip"
    return default_recipe(data, samples, augment, model, name)


def check_output_file(path: Path) -> None:
    """Raise an error if a file cannot be written, before the work for it begins."""
    from duck.runs import check_writable

    if path.is_dir():
        raise BadInput(f"{path} is a folder: name a file in it.")
    check_writable(path)


def apply_flags(parsed: T, given: Container[str], defaults: T) -> T:
    """Return the defaults for the data, changed by the flags that were given.

    `parsed` has the values of the flags; of those that were not given, the values of the help.
    """
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(parsed):  # type: ignore[arg-type]
        flag = field.name.replace("_", "-")
        if f"--{flag}" in given or f"--no-{flag}" in given:
            changes[field.name] = getattr(parsed, field.name)
    return dataclasses.replace(defaults, **changes)  # type: ignore[type-var]
