"""From words to what they mean: flags from dataclasses, data from --data, settings from presets and flags."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import tyro

from duck.checks import check_numbers
from duck.cli.console import counting
from duck.data import DATASETS, load
from duck.errors import BadInput
from duck.experiment import Experiment, from_toml
from duck.experiment import fingerprint as fingerprint
from duck.methods.presets import RecipeName, default_recipe
from duck.runs import check_writable, path_from, place_of
from duck.types import Data, Recipe

T = TypeVar("T")


@dataclass
class DataFlags:
    """Where the data are."""

    data: str
    """digits, cifar10, cifar100, tiny-imagenet, a folder of class folders of images, or an .npz file."""
    root: Path = Path("data")
    """Folder that holds the named data sets."""
    download: bool = False
    """Fetch a named data set that is not there, and check its SHA-256."""
    image_size: int | None = None
    """Resize images to this many pixels a side."""
    mean: tuple[float, ...] = ()
    """Per channel, of pixels in 0..1, as your model was trained with; the data's own where not given."""
    std: tuple[float, ...] = ()
    """Likewise."""

    def load(self, split: bool = True) -> Data:
        """`split`: whether data without test data give some away; a model that was trained elsewhere has seen all of them."""
        options: dict[str, Any] = {
            "image_size": self.image_size,
            "mean": self.mean,
            "std": self.std,
            "split": split,
        }
        with counting(f"reading {self.data}") as progress:
            return load(self.data, self.root, download=self.download, progress=progress, **options)

    def source(self, folder: Path) -> dict[str, str | None]:
        """Where to find them again, from the folder of a run."""
        data = self.data if self.data in DATASETS else path_from(folder, Path(self.data))
        return {"data": data, "root": path_from(folder, self.root)}


def place_in_record(folder: Path, source: Mapping[str, str | None]) -> DataFlags:
    """Where the record of a run says that its data are; an empty name where it does not say."""
    data, root = source.get("data") or "", source.get("root")
    if data and data not in DATASETS:
        data = str(place_of(folder, data))
    return DataFlags(data, place_of(folder, root) if root else Path("data"))


@dataclass
class RunFlags:
    """How to run, and where to put the result."""

    out: Path | None = None
    """Folder of the run; runs/ID where not given."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    overwrite: bool = False
    """Replace the run at --out, with its audits and analysis; other files in the folder stay."""
    json: bool = False
    """One JSON value to stdout instead of a table."""


def parse(cls: type[T], argv: Sequence[str], command: str, default: T | None = None) -> T:
    """The dataclass filled from flags. Flags of nested dataclasses carry no prefix."""
    options: dict[str, Any] = {} if default is None else {"default": default}
    parsed: T = tyro.cli(
        cls, prog=f"duck {command}", args=list(argv), config=(tyro.conf.OmitArgPrefixes,), **options
    )
    check_numbers(parsed)
    return parsed


def peek(argv: Sequence[str], flag: str, default: str = "") -> str:
    """The value of a flag before the flags are known: it decides which there are."""
    for here, following in pairwise([*argv, default]):
        if here == flag:
            return following
        if here.startswith(f"{flag}="):
            return here.partition("=")[2]
    return default


def experiment_of(argv: Sequence[str]) -> Experiment | None:
    """The experiment of --config, whose values are the flags' defaults."""
    file = peek(argv, "--config")
    return from_toml(Path(file)) if file else None


def words_of(settings: Mapping[str, Any]) -> list[str]:
    """Settings as words that `parse` reads back; those that are None are left out."""
    words: list[str] = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [
                f"--{flag}",
                *(map(str, value) if isinstance(value, tuple | list) else [str(value)]),
            ]
    return words


def shown_recipe(data: str, model: str = "", name: RecipeName = "standard") -> Recipe:
    """The recipe that the help shows: what is known of the data before they are read."""
    plain = data == "digits" or Path(data).suffix == ".npz"
    samples = None if data in DATASETS else 0
    return default_recipe(data, samples, "none" if plain else "crop-flip", model, name)


def check_model_code(model: str, source: Path | str, trusted: bool) -> None:
    """Raise an error where `source` names model code that the user has neither named nor trusted.

    A model of our own is only a name; "package.module:function" is imported and called, and can do anything.
    """
    if ":" in model and not trusted:
        raise BadInput(
            f"{source} names the model builder {model!r}, which would be imported and executed. Look at that code first; "
            "if you trust it, add --trust-model-code."
        )


def check_file(path: Path) -> None:
    """An error where no such file can be written: asked before the work that is to be kept there."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder: name a file in it.")
    check_writable(path)


def flags_in(argv: Sequence[str]) -> set[str]:
    """The flags that the words name, as the help spells them."""
    return {word.partition("=")[0].replace("_", "-") for word in argv if word.startswith("--")}


def settled(asked: T, argv: Sequence[str], real: T) -> T:
    """The settings for the data at hand, changed where the words name a flag: also where it asks for what the help shows."""
    given = flags_in(argv)
    names = [field.name for field in dataclasses.fields(asked)]  # type: ignore[arg-type]
    flags = {name: name.replace("_", "-") for name in names}
    changed = {
        name: getattr(asked, name)
        for name, flag in flags.items()
        if given & {f"--{flag}", f"--no-{flag}"}
    }
    return dataclasses.replace(real, **changed)  # type: ignore[type-var]
