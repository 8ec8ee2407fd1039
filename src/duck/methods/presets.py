"""Settings of methods per data set and kind, and recipes of originals: presets.toml, and what `duck tune` found."""

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from duck.errors import BadInput
from duck.files import read_text
from duck.methods.base import METHODS, Method, check_kind
from duck.registry import suggest
from duck.types import Recipe

Preset = Literal["paper", "tuned"]
RecipeName = Literal["standard", "paper"]
Origin = Literal["paper", "code", "search", "hand"]


@dataclass(frozen=True)
class Source:
    """Where the values of a preset come from."""

    origin: Origin
    """A paper, its authors' public code, a search on holdout data, or a choice by hand."""
    where: str
    objective: str = ""
    """Of a search: what was maximised on holdout data."""
    trials: int = 0
    date: str = ""

    def __str__(self) -> str:
        if self.origin == "search":
            return f"search: best of {self.trials} trials by {self.objective} on holdout data, {self.date} ({self.where})"
        names = {"paper": "paper", "code": "authors' code", "hand": "by hand"}
        return f"{names[self.origin]}: {self.where}{f', {self.date}' if self.date else ''}"


@cache
def presets() -> Mapping[str, Any]:
    """presets.toml: settings per method, data set and kind, and recipes per data set."""
    return tomllib.loads(files("duck.methods").joinpath("presets.toml").read_text(encoding="utf-8"))


def preset(
    method: str,
    data: str,
    kind: str,
    samples: int | None = None,
    name: Preset = "tuned",
    more: Path | None = None,
) -> Method:
    """Return a method with its hyperparameters for a data set.

    Args:
        method: A name from `duck list methods`.
        data: Name of the data set. Data that no preset names take the preset for their size:
            `small` below 20,000 training samples, else `any`.
        kind: `class` for whole classes, `samples` for single samples.
        samples: Number of training samples, `len(data.train)`. Known for named data sets.
        name: `paper` has the numbers of the paper; `tuned` has the changes that were found on
            holdout data.
        more: A file of `duck tune`, whose hyperparameters take precedence. It is an error if it
            has none for this method, data set and kind.
    """
    cls = METHODS[method]
    check_kind(method, kind)
    settings: dict[str, Any] = {}
    for part in _parts(method, data, kind, samples, name):
        settings |= part
    if more is not None:
        settings |= _found(more, method, data, kind)
    return cls(**{key: _tuple(value) for key, value in settings.items() if key != "source"})


def sources(
    method: str, data: str, kind: str, samples: int | None = None, name: Preset = "tuned"
) -> list[Source]:
    """Return where the values of a preset come from: those of `paper` first, then those that `tuned` puts in their place."""
    names = [
        source for part in _parts(method, data, kind, samples, name) for source in part["source"]
    ]
    known = presets()["sources"]
    return [
        Source(
            known[one]["from"], **{key: value for key, value in known[one].items() if key != "from"}
        )
        for one in names
    ]


def _parts(
    method: str, data: str, kind: str, samples: int | None, name: Preset
) -> list[dict[str, Any]]:
    """Return the settings of `paper` and then, where asked for, the changes of `tuned`."""
    known = presets().get(method, {})
    chosen = known.get(data) or known.get(_size(data, samples), {})
    wanted = ("paper", "tuned") if name == "tuned" else ("paper",)
    return [chosen[one][kind] for one in wanted if kind in chosen.get(one, {})]


def speaks_of(file: Path, method: str, data: str, kind: str) -> bool:
    """Whether a file of `duck tune` has settings for this."""
    return bool(_tables(file).get((method, data, "tuned", kind)))


def off_topic(file: Path, method: str, data: str, kind: str) -> BadInput:
    """The error about a file that has none."""
    there = (
        ", ".join(
            f"[{'.'.join(key)}]" if key else "values outside of tables" for key in _tables(file)
        )
        or "no settings at all"
    )
    return BadInput(
        f"{file} has no settings for this run, which would be in [{method}.{data}.tuned.{kind}]: it has {there}."
    )


def _found(file: Path, method: str, data: str, kind: str) -> dict[str, Any]:
    """The settings of a file of `duck tune`."""
    if not speaks_of(file, method, data, kind):
        raise off_topic(file, method, data, kind)
    settings = _tables(file)[method, data, "tuned", kind]
    known = [field.name for field in dataclasses.fields(METHODS[method])]  # type: ignore[arg-type]
    wrong = [
        f"{method} has no setting {name!r}. {suggest(name, known)}"
        for name in settings
        if name not in known
    ]
    if wrong:
        raise BadInput(f"{file}: {' '.join(wrong)}")
    return settings


def _tables(file: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    """The tables of a file that hold values, by the names that lead to them."""
    try:
        return dict(_leaves((), tomllib.loads(read_text(file))))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{file} cannot be read as a file of presets: {error}") from error


def _leaves(
    path: tuple[str, ...], table: dict[str, Any]
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    values = {name: value for name, value in table.items() if not isinstance(value, dict)}
    if values:
        yield path, values
    for name, value in table.items():
        if isinstance(value, dict) and name != "source":
            yield from _leaves((*path, name), value)


def default_recipe(
    data: str,
    samples: int | None,
    augment: str,
    model: str = "",
    name: RecipeName = "standard",
) -> Recipe:
    """Return the recipe with which originals of a data set are trained.

    name    `standard` is ours; `paper` is that of the DUCK paper, which has one for CIFAR-10,
            CIFAR-100 and Tiny-ImageNet
    model   architectures that need another optimizer change the standard recipe
    """
    known = presets()["recipe"]
    recipes = known.get(data) or known[_size(data, samples)]
    if name not in recipes:
        having = ", ".join(known_data for known_data, names in known.items() if name in names)
        raise BadInput(f"{data} has no recipe {name!r}. Data sets that have one: {having}.")
    changes: dict[str, Any] = {}
    if name == "standard":
        changes = {
            **presets()["recipe-of-model"].get(model, {}),
            **recipes.get("of-model", {}).get(model, {}),
        }
    settings = {"augment": augment, **recipes[name], **changes}
    return Recipe(**{key: _tuple(value) for key, value in settings.items()})


def _tuple(value: Any) -> Any:
    """Return a list of TOML as a tuple, which dataclasses can hash."""
    return tuple(value) if isinstance(value, list) else value


def _size(data: str, samples: int | None) -> str:
    if samples is None:
        return "small" if data == "digits" else "any"
    return "small" if samples < 20_000 else "any"
