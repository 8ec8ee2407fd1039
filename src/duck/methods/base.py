"""What methods share: the table of them, their presets, and the copy they work on."""

import copy
import dataclasses
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.batching import Step
from duck.errors import BadInput
from duck.fit import Loss
from duck.models.embedding import logits_of
from duck.registry import Registry, suggest
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


def other_classes(task: Task) -> Tensor:
    """Which classes each forget sample could be given instead of its own, (samples, classes): those that stay."""
    allowed = torch.zeros(len(task.forget), task.num_classes, dtype=torch.bool)
    allowed[:, task.retain.labels.unique()] = True
    allowed[torch.arange(len(allowed)), task.forget.labels] = False
    if not allowed.any(1).all():
        raise BadInput("Some forget samples have no other class to go to: retain samples of at least two classes are needed.")
    return allowed


def loss_on_forget(targets: Tensor) -> Loss:
    """Cross-entropy of the forget samples against these labels, one for each row; retain samples in the step join with their own."""

    def loss(net: nn.Module, step: Step) -> Tensor:
        forget, retain = step["forget"], step.get("retain")
        images, labels = forget.images, targets[forget.rows]
        if retain is not None:
            images, labels = torch.cat([images, retain.images]), torch.cat([labels, retain.labels])
        # A single sample has no spread to normalise by. (From two on, freezing lost more retain accuracy in every trial on digits.)
        if len(images) == 1:
            freeze_norms(net)
        return cross_entropy(logits_of(net(images)).float(), labels)

    return loss


def freeze_norms(model: nn.Module) -> None:
    """From here on BatchNorm goes by the statistics it has and leaves them alone; `fit` puts the modes back when it ends."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.training = False


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
