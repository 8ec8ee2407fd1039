"""Flags that several commands share, and how they become data, recipes and settings."""

from dataclasses import dataclass
from pathlib import Path

from duck.cli.console import progress_bar
from duck.cli.parsing import (
    GivenFlags,
    apply_flags,
    check_output_file,
    given_values,
    parse,
    read_flags,
)
from duck.data import DATASETS, SMALL_IMAGES
from duck.data.progress import ProgressCallback
from duck.engines import Engine, EngineName, create_engine
from duck.experiment import Experiment, from_toml
from duck.methods.presets import RecipeName, default_recipe
from duck.options import DataOptions, RunOptions
from duck.types import Data, Recipe

__all__ = [
    "DataFlags",
    "EngineFlags",
    "GivenFlags",
    "RunFlags",
    "apply_flags",
    "check_output_file",
    "given_values",
    "load_config",
    "parse",
    "read_flags",
    "recipe_for_help",
]


class DataFlags(DataOptions):
    """Where the data are."""

    def load(self, split: bool = True, progress: ProgressCallback | None = None) -> Data:
        """Load the data; show a progress bar unless a progress callback is given."""
        if progress is not None:
            return super().load(split, progress)
        with progress_bar(f"reading {self.data}") as bar:
            return super().load(split, bar)


@dataclass(frozen=True)
class RunFlags(RunOptions):
    """How to run, and where to put the result."""

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


def load_config(given: GivenFlags) -> Experiment | None:
    """Return the experiment of --config, whose values are the defaults of the flags."""
    file = given.get("--config")
    return from_toml(Path(file)) if file else None


def recipe_for_help(data: str, model: str = "", name: RecipeName = "standard") -> Recipe:
    """Return the recipe that the help shows, before the data are read."""
    has_no_augmentation = data in SMALL_IMAGES or Path(data).suffix == ".npz"
    samples = None if data in DATASETS else 0
    augment = "none" if has_no_augmentation else "crop-flip"
    return default_recipe(data, samples, augment, model, name)
