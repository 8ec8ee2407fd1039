"""Presets: hyperparameters of methods by data set and kind, and recipes of originals.

They come from presets.toml and from files that `duck tune` writes.
"""

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from duck.data import SMALL_IMAGES
from duck.errors import BadInput
from duck.files import read_toml
from duck.methods.base import METHODS, Method, check_kind
from duck.registry import suggest
from duck.types import Recipe

Preset = Literal["paper", "tuned"]
RecipeName = Literal["standard", "paper"]
Origin = Literal["paper", "code", "search", "hand"]


@dataclass(frozen=True)
class Source:
    """The origin of the values of a preset."""

    origin: Origin
    """A paper, its authors' public code, a search on holdout data, or a choice by hand."""
    where: str
    objective: str = ""
    """What a search maximised on holdout data."""
    trials: int = 0
    date: str = ""

    def __str__(self) -> str:
        if self.origin == "search":
            return (
                f"search: best of {self.trials} trials by {self.objective} on holdout data, "
                f"{self.date} ({self.where})"
            )
        names = {"paper": "paper", "code": "authors' code", "hand": "by hand"}
        date = f", {self.date}" if self.date else ""
        return f"{names[self.origin]}: {self.where}{date}"


@cache
def presets() -> Mapping[str, Any]:
    """Return the content of presets.toml."""
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
        settings |= _read_settings(more, method, data, kind)
    return cls(**{key: _tuple(value) for key, value in settings.items() if key != "source"})


def sources(
    method: str, data: str, kind: str, samples: int | None = None, name: Preset = "tuned"
) -> list[Source]:
    """Return the sources of a preset: those of `paper`, then those of `tuned`."""
    known = presets()["sources"]
    found = []
    for part in _parts(method, data, kind, samples, name):
        for source in part["source"]:
            fields = dict(known[source])
            found.append(Source(fields.pop("from"), **fields))
    return found


def _parts(
    method: str, data: str, kind: str, samples: int | None, name: Preset
) -> list[dict[str, Any]]:
    """Return the values of `paper` and then, for `tuned`, the values that replace them."""
    by_data = presets().get(method, {})
    by_name = by_data.get(data) or by_data.get(_size(data, samples), {})
    names = ("paper", "tuned") if name == "tuned" else ("paper",)
    return [by_name[part][kind] for part in names if kind in by_name.get(part, {})]


def has_settings(file: Path, method: str, data: str, kind: str) -> bool:
    """Return whether a file of `duck tune` has values for this method, data set and kind."""
    return bool(_tables(file).get((method, data, "tuned", kind)))


def missing_settings(file: Path, method: str, data: str, kind: str) -> BadInput:
    """Return the error about a file without values for this method, data set and kind."""
    names = [f"[{'.'.join(key)}]" if key else "values outside of tables" for key in _tables(file)]
    content = ", ".join(names) or "no values at all"
    return BadInput(
        f"{file} has no table [{method}.{data}.tuned.{kind}], which this run needs. "
        f"It has {content}."
    )


def _read_settings(file: Path, method: str, data: str, kind: str) -> dict[str, Any]:
    if not has_settings(file, method, data, kind):
        raise missing_settings(file, method, data, kind)
    settings = _tables(file)[method, data, "tuned", kind]
    known = [field.name for field in dataclasses.fields(METHODS[method])]  # type: ignore[arg-type]
    problems = [
        f"{method} has no setting {name!r}. {suggest(name, known)}"
        for name in settings
        if name not in known
    ]
    if problems:
        raise BadInput(f"{file}: {' '.join(problems)}")
    return settings


def _tables(file: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the tables of a file that contain values, by their path."""
    return dict(_leaves((), read_toml(file)))


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
    """Return the recipe for originals of a data set.

    name    `standard` is ours; `paper` is that of the DUCK paper, for CIFAR-10, CIFAR-100 and
            Tiny-ImageNet
    model   some architectures change the standard recipe, such as its optimizer
    """
    known = presets()["recipe"]
    recipes = known.get(data) or known[_size(data, samples)]
    if name not in recipes:
        others = ", ".join(other for other, names in known.items() if name in names)
        raise BadInput(f"{data} has no recipe {name!r}. Data sets that have one: {others}.")
    changes: dict[str, Any] = {}
    if name == "standard":
        changes = {
            **presets()["recipe-of-model"].get(model, {}),
            **recipes.get("of-model", {}).get(model, {}),
        }
    settings = {"augment": augment, **recipes[name], **changes}
    return Recipe(**{key: _tuple(value) for key, value in settings.items()})


def _tuple(value: Any) -> Any:
    """Return a list as a tuple, so that dataclasses can be hashed."""
    return tuple(value) if isinstance(value, list) else value


def _size(data: str, samples: int | None) -> str:
    if samples is None:
        return "small" if data in SMALL_IMAGES else "any"
    return "small" if samples < 20_000 else "any"
