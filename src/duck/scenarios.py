"""Who is to be forgotten: whole classes, a random share, or chosen samples."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from duck.errors import BadInput
from duck.registry import Registry, suggest
from duck.runtime import seeded
from duck.types import Data, Protocols, Scenario


class Request(Protocol):
    """A frozen dataclass that says who; called on data it says which rows."""

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario: ...


SCENARIOS: Registry[type[Request]] = Registry("scenario")


@SCENARIOS.register("classes")
@dataclass(frozen=True)
class ForgetClasses:
    """Class removal (CR): every training sample of these classes."""

    classes: tuple[int | str, ...]
    """Class indices or names."""

    def __init__(self, classes: Iterable[int | str]) -> None:
        object.__setattr__(self, "classes", tuple(classes))

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario:
        wanted = {_class_index(name, data) for name in self.classes}
        if not wanted:
            raise BadInput("No class to forget was given.")
        if len(wanted) == data.num_classes:
            raise BadInput(f"All {data.num_classes} classes are to be forgotten: nothing would be left. Delete the model instead.")
        return _partition(data, torch.isin(data.train.labels, torch.tensor(sorted(wanted))), seed, protocol)


@SCENARIOS.register("fraction")
@dataclass(frozen=True)
class ForgetFraction:
    """Homogeneous removal (HR): a random share of the training samples, drawn with the run's seed."""

    fraction: float = 0.1

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario:
        if not 0 < self.fraction < 1:
            raise BadInput(f"The fraction must lie between 0 and 1, got {self.fraction}.")
        total = len(data.train)
        count = round(self.fraction * total)
        if not 0 < count < total:
            raise BadInput(f"A fraction of {self.fraction} of {total} samples is {count}: nothing to forget or to retain.")
        chosen = torch.zeros(total, dtype=torch.bool)
        chosen[torch.randperm(total, generator=seeded(seed, "fraction"))[:count]] = True
        return _partition(data, chosen, seed, protocol)


@SCENARIOS.register("samples")
@dataclass(frozen=True)
class ForgetSamples:
    """Chosen samples, by id."""

    ids: tuple[str, ...]

    def __init__(self, ids: Iterable[str | int]) -> None:
        object.__setattr__(self, "ids", tuple(str(name) for name in ids))

    @staticmethod
    def from_file(path: Path) -> "ForgetSamples":
        """One id a line; blank lines and what follows a # are passed over."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"The file of ids {path} cannot be read: {error}") from error
        return ForgetSamples(name for line in lines if (name := line.split("#")[0].strip()))

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario:
        if not self.ids:
            raise BadInput("No id to forget was given.")
        names, counts = np.unique(np.array(self.ids), return_counts=True)
        if (counts > 1).any():
            raise BadInput(f"Duplicated ids: {_some(names[counts > 1].tolist())}. Give each id once.")
        known = data.train.ids
        missing = sorted(set(self.ids) - set(known.tolist()))
        unseen = sorted(set(missing) & set(data.test.ids.tolist())) if data.test is not None else []
        if unseen:
            raise BadInput(f"The model never saw {_some(unseen)}: they are test data of {data.name}. Leave them out of the request.")
        if missing:
            hint = suggest(missing[0], known.tolist()) if len(known) <= 5000 else f"Ids look like {known[0]!r}."
            raise BadInput(f"Ids that are not in the training data: {_some(missing)}. {hint if len(hint) < 200 else ''}".rstrip())
        chosen = torch.from_numpy(np.isin(known, names))
        if chosen.all():
            raise BadInput("Every training sample is to be forgotten: nothing would be left to retain. Delete the model instead.")
        return _partition(data, chosen, seed, protocol)


def describe(request: Request) -> str:
    """A request in a few words."""
    match request:
        case ForgetClasses(classes=classes):
            return f"{'class' if len(classes) == 1 else 'classes'} {', '.join(map(str, classes))}"
        case ForgetFraction(fraction=fraction):
            return f"{100 * fraction:g} % of the samples"
        case ForgetSamples(ids=ids):
            return f"{len(ids)} samples"
    return str(request)


def _some(names: list[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + rest


def _class_index(name: int | str, data: Data) -> int:
    if isinstance(name, str) and name in data.classes:
        return data.classes.index(name)
    try:
        index = int(name)
    except ValueError:
        raise BadInput(f"{data.name} has no class {name!r}. {suggest(str(name), list(data.classes))}") from None
    if not 0 <= index < data.num_classes:
        raise BadInput(f"Class {index} is out of range: {data.name} has classes 0 to {data.num_classes - 1}.")
    return index


def _partition(data: Data, chosen: Tensor, seed: int, protocol: Protocols) -> Scenario:
    forget, retain = chosen.nonzero().flatten(), (~chosen).nonzero().flatten()
    labels = data.train.labels
    gone = torch.isin(labels[forget], labels[retain]).logical_not()
    kind: Literal["class", "samples"] = "class" if gone.all() else "samples"
    rows = torch.arange(len(data.test) if data.test is not None else 0)
    if protocol == "paper":
        holdout, test = rows, rows
    else:
        holdout, test = data.holdout, rows[~torch.isin(rows, data.holdout)]
    none = torch.empty(0, dtype=torch.int64)
    if kind == "samples" or data.test is None:
        return Scenario(data, kind, seed, protocol, forget, retain, holdout, test, none, none)
    forgotten = torch.isin(data.test.labels[test], labels[forget])
    return Scenario(data, kind, seed, protocol, forget, retain, holdout, test, test[forgotten], test[~forgotten])
