"""Flags that several commands share, and how they become requests, recipes and engines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duck.cli.parsing import GivenFlags
from duck.commands.forget import ForgetOptions
from duck.commands.options import DataOptions, OriginalOptions, RunOptions, default_model
from duck.data import DATASETS, SMALL_IMAGES
from duck.data.checks import Finding
from duck.engines import Engine, EngineName, create_engine
from duck.errors import BadInput
from duck.experiment import Experiment, from_toml
from duck.methods.presets import default_recipe
from duck.scenarios import (
    ForgetClasses,
    ForgetFraction,
    ForgetRandomClasses,
    ForgetSamples,
    Request,
)
from duck.types import Protocols, Recipe

REQUESTS: dict[str, Callable[[Any], Request]] = {
    "classes": ForgetClasses,
    "fraction": ForgetFraction,
    "random_classes": ForgetRandomClasses,
    "ids": ForgetSamples.from_file,
}
"""The request of each flag."""


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

    def create(self, default_workers: int = 1) -> Engine:
        """Return the engine."""
        workers = self.workers
        if workers is None:
            workers = 1 if self.engine == "inline" else default_workers
        return create_engine(self.engine, workers, self.address, self.gpus_per_worker)


@dataclass
class RequestFlags:
    """What to forget: one of --classes, --fraction, --random-classes and --ids."""

    classes: tuple[str, ...] = ()
    """Names of classes; a number is an index if no class has that name."""
    fraction: float | None = None
    """Share of the training samples, drawn with the seed."""
    random_classes: int | None = None
    """Number of classes to remove together, drawn with the seed."""
    ids: Path | None = None
    """File with one id a line: in a folder the path of an image below --data (train/cat/1.png), in
    other data its name or number."""
    protocol: Protocols = "holdout"
    """holdout: stop rules use a fifth of the test data, which is not reported; paper: the whole
    test set is used for both."""

    @property
    def _given(self) -> list[str]:
        return [name for name in REQUESTS if getattr(self, name) not in ((), None)]

    def read(self, default: Request | None = None) -> Request:
        """Return the request of the flags, else the default one."""
        if default is not None and not self._given:
            return default
        if len(self._given) != 1:
            flags, given = (
                ", ".join(f"--{name.replace('_', '-')}" for name in names)
                for names in (REQUESTS, self._given)
            )
            raise BadInput(f"Give what to forget with one of {flags}; given: {given or 'none'}.")
        (name,) = self._given
        return REQUESTS[name](getattr(self, name))

    def read_optional(self) -> Request | None:
        """Return the request of the flags; None if none was given."""
        return self.read() if self._given else None


@dataclass
class SharedFlags:
    """What is forgotten from which model: the flags of `duck forget`, `compare` and `tune`."""

    source: DataOptions
    output: RunFlags
    original: OriginalOptions
    request: RequestFlags

    def forget_options(self, default: Request | None = None, **rest: Any) -> ForgetOptions:
        """Return the options of the unlearning; `rest` are further ones.

        default   the request if no flag gives one
        """
        return ForgetOptions(
            self.request.read(default),
            self.original,
            self.source,
            self.output,
            protocol=self.request.protocol,
            **rest,
        )


def load_config(given: GivenFlags) -> Experiment | None:
    """Return the experiment of --config, whose values are the defaults of the flags."""
    file = given.get("--config")
    return from_toml(Path(file)) if file else None


def recipe_for_help(given: GivenFlags) -> Recipe:
    """Return the recipe that the help shows, before the data are read."""
    data = given.get("--data") or "digits"
    model = given.get("--model") or default_model(data)
    has_no_augmentation = data in SMALL_IMAGES or Path(data).suffix == ".npz"
    return default_recipe(
        data,
        None if data in DATASETS else 0,
        "none" if has_no_augmentation else "crop-flip",
        model,
        "paper" if given.get("--recipe-preset") == "paper" else "standard",
    )


def unprinted_notes(notes: Sequence[str], printed: Sequence[Finding]) -> list[str]:
    """Return the notes without the findings that were printed."""
    texts = {finding.text for finding in printed}
    return [note for note in notes if note not in texts]
