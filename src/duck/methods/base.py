"""What methods share: the table of them, their presets, and the copy they work on."""

import copy
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from duck.errors import BadInput
from duck.registry import Registry
from duck.types import Recipe, Task

Kinds = tuple[Literal["class", "samples"], ...]
Preset = Literal["paper", "tuned"]
Forgets = Literal["training", "omission", "nothing"]
"""training: passes over the forget samples; omission: never sees them."""


class Method(Protocol):
    """A frozen dataclass: its fields are the hyperparameters, its class attributes what `duck list methods` shows."""

    paper: ClassVar[str]
    scenarios: ClassVar[Kinds]
    needs_retain: ClassVar[bool]
    forgets_by: ClassVar[Forgets]

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        """A new model; the given one stays as it was."""


@runtime_checkable
class Prepares(Protocol):
    """A method that computes something beforehand: timed apart and cached, so that other requests to the same original find it."""

    prepared_from: ClassVar[tuple[str, ...]]
    """The fields that `prepare` depends on."""
    prepared_per_request: ClassVar[bool]
    """Whether it depends on who is to be forgotten."""

    def prepare(self, model: nn.Module, task: Task) -> Mapping[str, Tensor]:
        """Tensors for `task.prepared`. `__call__` must call it itself where `task.prepared` is None."""


METHODS: Registry[type[Method]] = Registry("method", group="duck.methods")


def clone(model: nn.Module) -> nn.Module:
    """A copy that shares nothing with the original and can be trained."""
    twin = copy.deepcopy(model)
    for parameter in twin.parameters():
        parameter.grad = None
    return twin


@cache
def presets() -> Mapping[str, Any]:
    """presets.toml: settings per method, data set and kind, and recipes per data set."""
    return tomllib.loads(files("duck.methods").joinpath("presets.toml").read_text(encoding="utf-8"))


def preset(method: str, data: str, kind: str, samples: int | None = None, name: Preset = "tuned") -> Method:
    """The method with its settings for a data set and kind (`class` or `samples`).

    paper   the paper's numbers
    tuned   with what was found on holdout data; the paper's where nothing was tuned

    Data that no preset names take those of their size: `small` below 20,000 training samples, else `any`.
    """
    cls = METHODS[method]
    check_kind(method, kind)
    known = presets().get(method, {})
    chosen = known.get(data) or known.get(_size(samples), {})
    settings = {**chosen.get("paper", {}).get(kind, {}), **(chosen.get("tuned", {}).get(kind, {}) if name == "tuned" else {})}
    return cls(**settings)


def check_kind(method: str, kind: str) -> None:
    """An error where a method that removes classes is asked to forget single samples."""
    if kind not in METHODS[method].scenarios:
        able = ", ".join(name for name, cls in METHODS.items() if kind in cls.scenarios)
        raise BadInput(f"{method} can only forget whole classes, not single samples. Methods that can: {able}.")


def default_recipe(data: str, samples: int | None, augment: str) -> Recipe:
    """How originals are trained on a data set."""
    known = presets()["recipe"]
    return Recipe(**{"augment": augment, **(known.get(data) or known[_size(samples)])})


def _size(samples: int | None) -> str:
    return "small" if samples is not None and samples < 20_000 else "any"
