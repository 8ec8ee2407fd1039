"""Presets: hyperparameters of methods by data set and kind, and recipes of originals.

They come from presets.toml and from files that `duck tune` writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from duck.checks import check_settings
from duck.data import SMALL_IMAGES
from duck.errors import BadInput
from duck.files import package_toml, read_toml
from duck.methods.base import METHODS, Method, check_kind
from duck.records import structure_input
from duck.registry import suggest
from duck.types import Recipe

Preset = Literal["paper", "tuned"]
RecipeName = Literal["standard", "paper"]
Origin = Literal["paper", "code", "search", "hand"]
PresetFile = dict[str, dict[str, dict[str, dict[str, dict[str, Any]]]]]
"""The content of a file of `duck tune`: method -> data -> `tuned` -> kind -> values."""
UNSET = "unset"
"""In a file of `duck tune`, the list of the settings that are None. TOML has no such value."""


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
    return package_toml("duck.methods", "presets.toml")


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
    if more is None:
        return structure_input(_without_source(settings), cls)
    if not has_settings(more, method, data, kind):
        raise missing_settings(more, method, data, kind)
    values = _tables(more)[method, data, kind]
    try:
        settings |= values | dict.fromkeys(structure_input(values.get(UNSET, []), list[str]))
        found = structure_input(_without_source(settings), cls)
        check_settings(found)
        return found
    except BadInput as error:
        raise BadInput(f"{more}: {error}") from error


def _without_source(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in ("source", UNSET)}


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
    return (method, data, kind) in _tables(file)


def missing_settings(file: Path, method: str, data: str, kind: str) -> BadInput:
    """Return the error about a file without values for this method, data set and kind."""
    names = [f"[{one}.{data}.tuned.{kind}]" for one, data, kind in _tables(file)]
    return BadInput(
        f"{file} has no table [{method}.{data}.tuned.{kind}], which this run needs. "
        f"It has {', '.join(names) or 'no such table'}."
    )


def _tables(file: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return the values in a file of `duck tune`, by method, data set and kind."""
    try:
        content = structure_input(read_toml(file), PresetFile)
    except BadInput as error:
        raise BadInput(
            f"{file}: {error} Settings are in tables [METHOD.DATA.tuned.KIND]."
        ) from error
    tables = {}
    for method, by_data in content.items():
        for data, names in by_data.items():
            for name, by_kind in names.items():
                for kind, settings in by_kind.items():
                    _check_table(file, method, data, name, kind)
                    tables[method, data, kind] = settings
    return tables


def _check_table(file: Path, method: str, data: str, name: str, kind: str) -> None:
    """Raise an error for a table that no run could use."""
    problem = ""
    if method not in METHODS:
        problem = f"There is no method {method!r}. {suggest(method, METHODS)}"
    elif name != "tuned":
        problem = f"The preset must be 'tuned', not {name!r}."
    elif kind not in METHODS[method].scenarios:
        kinds = " or ".join(repr(known) for known in sorted(METHODS[method].scenarios))
        problem = f"The kind of {method} must be {kinds}, not {kind!r}."
    if problem:
        raise BadInput(f"{file}: the table [{method}.{data}.{name}.{kind}] is not known. {problem}")


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
    return structure_input({"augment": augment, **recipes[name], **changes}, Recipe)


def _size(data: str, samples: int | None) -> str:
    if samples is None:
        return "small" if data in SMALL_IMAGES else "any"
    return "small" if samples < 20_000 else "any"
