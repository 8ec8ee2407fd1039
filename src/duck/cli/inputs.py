"""Flags that several commands share, and how they become data, requests, recipes and settings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from duck import runs
from duck.cli.parsing import GivenFlags, read_flags
from duck.commands.forget import ForgetOptions
from duck.commands.options import DataOptions, OriginalOptions, RunOptions, resolve_classes
from duck.data import DATASETS, SMALL_IMAGES
from duck.data.checks import Finding
from duck.engines import Engine, EngineName, create_engine
from duck.errors import BadInput
from duck.experiment import Experiment, from_toml
from duck.methods.presets import RecipeName, default_recipe
from duck.scenarios import (
    ForgetClasses,
    ForgetFraction,
    ForgetRandomClasses,
    ForgetSamples,
    Request,
)
from duck.types import Data, Protocols, Recipe

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

    def read(self, default: Request | None = None) -> Request:
        """Return the request; `default` if no flag gives one."""
        given = [name for name in REQUESTS if getattr(self, name) not in ((), None)]
        if default is not None and not given:
            return default
        if len(given) != 1:
            flags, named = (
                ", ".join(f"--{name.replace('_', '-')}" for name in names)
                for names in (REQUESTS, given)
            )
            raise BadInput(f"Give what to forget with one of {flags}; given: {named or 'none'}.")
        return self._samples if given == ["ids"] else REQUESTS[given[0]](getattr(self, given[0]))

    def build(self, data: Data, default: Request | None = None) -> Request:
        """Return the request with its classes as records store them."""
        request = self.read(default)
        return request if request is default else resolve_classes(request, data)

    @cached_property
    def _samples(self) -> ForgetSamples:
        """The request for the ids, read once: a pipe cannot be read twice."""
        assert self.ids is not None
        return ForgetSamples.from_file(self.ids)


@dataclass
class SharedFlags:
    """What is forgotten from which model: the flags of `duck compare` and `duck tune`."""

    source: DataOptions
    output: RunFlags
    original: OriginalOptions
    request: RequestFlags
    engine: EngineFlags

    def forget_options(self, **rest: Any) -> ForgetOptions:
        """Return the options of the unlearning; `rest` are further ones."""
        return ForgetOptions(
            self.request.read(),
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


def recipe_for_help(data: str, model: str = "", name: RecipeName = "standard") -> Recipe:
    """Return the recipe that the help shows, before the data are read."""
    has_no_augmentation = data in SMALL_IMAGES or Path(data).suffix == ".npz"
    samples = None if data in DATASETS else 0
    augment = "none" if has_no_augmentation else "crop-flip"
    return default_recipe(data, samples, augment, model, name)


def unprinted_notes(notes: Sequence[str], printed: Sequence[Finding]) -> list[str]:
    """Return the notes without the findings that were printed."""
    texts = {finding.text for finding in printed}
    return [note for note in notes if note not in texts]


def data_flags(given: GivenFlags) -> DataOptions:
    """Return the data of --run, else those of --data."""
    if given.get("--run"):
        return DataOptions.from_run(Path(given["--run"]))
    return DataOptions(given.get("--data") or "digits")


def default_flags(
    argv: Sequence[str],
) -> tuple[DataOptions, RunFlags, OriginalOptions, RequestFlags, EngineFlags]:
    """Return the defaults of SharedFlags."""
    source = data_flags(read_flags(argv))
    return source, RunFlags(), OriginalOptions(), RequestFlags(), EngineFlags()


def data_name(given: GivenFlags) -> str:
    """Return the name of the data in presets, before they are read."""
    run = given.get("--run")
    if not run:
        return given.get("--data") or "digits"
    return runs.load_public(Path(run)).experiment.training.data


def data_samples(given: GivenFlags) -> int | None:
    """Return the number of training samples before the data are read.

    The presets know it for named data sets (None); others are taken for small (0).
    """
    run = given.get("--run")
    if not run:
        return None if data_name(given) in DATASETS else 0
    samples = runs.load_public(Path(run)).samples
    parts = sum(samples.get(name, 0) for name in ("forget", "retain"))
    return samples.get("train") or parts or None
