"""Settings of methods per data set and kind, and recipes of originals: presets.toml, and what `duck tune` found."""

import dataclasses
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from duck.errors import BadInput
from duck.methods.base import METHODS, Method, check_kind
from duck.registry import suggest
from duck.types import Recipe

Preset = Literal["paper", "tuned"]


@cache
def presets() -> Mapping[str, Any]:
    """presets.toml: settings per method, data set and kind, and recipes per data set."""
    return tomllib.loads(files("duck.methods").joinpath("presets.toml").read_text(encoding="utf-8"))


def preset(method: str, data: str, kind: str, samples: int | None = None, name: Preset = "tuned", more: Path | None = None) -> Method:
    """The method with its settings for a data set and kind (`class` or `samples`).

    paper   the paper's numbers
    tuned   with what was found on holdout data; the paper's where nothing was tuned

    Data that no preset names take those of their size: `small` below 20,000 training samples, else `any`. `more` is a file of
    `duck tune`, whose settings go on top.
    """
    cls = METHODS[method]
    check_kind(method, kind)
    known = presets().get(method, {})
    chosen = known.get(data) or known.get(_size(samples), {})
    settings = {**chosen.get("paper", {}).get(kind, {}), **(chosen.get("tuned", {}).get(kind, {}) if name == "tuned" else {})}
    if more is not None:
        settings |= _found(more, method, data, kind)
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()})


def _found(file: Path, method: str, data: str, kind: str) -> dict[str, Any]:
    """The settings of a file of `duck tune`; nothing where it is about another method, data set or kind."""
    try:
        settings: dict[str, Any] = (
            tomllib.loads(file.read_text(encoding="utf-8")).get(method, {}).get(data, {}).get("tuned", {}).get(kind, {})
        )
    except (OSError, tomllib.TOMLDecodeError, AttributeError) as error:
        raise BadInput(f"{file} cannot be read as a file of presets: {error}") from error
    known = [field.name for field in dataclasses.fields(METHODS[method])]  # type: ignore[arg-type]
    for name in settings:
        if name not in known:
            raise BadInput(f"{file}: {method} has no setting {name!r}. {suggest(name, known)}")
    return settings


def default_recipe(data: str, samples: int | None, augment: str) -> Recipe:
    """How originals are trained on a data set."""
    known = presets()["recipe"]
    return Recipe(**{"augment": augment, **(known.get(data) or known[_size(samples)])})


def _size(samples: int | None) -> str:
    return "small" if samples is not None and samples < 20_000 else "any"
