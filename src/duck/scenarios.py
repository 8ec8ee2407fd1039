"""Requests (classes, a fraction, samples, a bias) and the scenarios they produce from data."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from duck.data.checks import copies_in_retain
from duck.data.patch import Patch, relabelled
from duck.errors import BadInput
from duck.files import read_text
from duck.printable import listed, printable
from duck.registry import Registry, suggest
from duck.runtime import seeded
from duck.types import Data, EarlierForgetSet, Examples, Protocols, Scenario


class Request(Protocol):
    """Which samples to forget. Calling it on data returns the index sets."""

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario: ...


REQUESTS: Registry[type[Request]] = Registry("request")


@REQUESTS.register("classes")
@dataclass(frozen=True)
class ForgetClasses:
    """Class removal (CR): forget all training samples of these classes."""

    classes: tuple[int | str, ...]
    """Class indices or names. A string is a name or, if no class has that name, an index."""

    def __init__(self, classes: Iterable[int | str] | int | str) -> None:
        is_single = (
            isinstance(classes, str)
            or not isinstance(classes, Iterable)
            or _to_number(classes) is not classes
        )
        names = [classes] if is_single else classes
        checked = tuple(_check_class(name) for name in names)  # type: ignore[union-attr]
        object.__setattr__(self, "classes", checked)

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario:
        indices = sorted({_class_index(name, data) for name in self.classes})
        if not indices:
            raise BadInput("No class to forget was given.")
        if len(indices) == data.num_classes:
            raise BadInput(
                f"All {data.num_classes} classes are to be forgotten: nothing would be left."
            )
        chosen = torch.isin(data.train.labels, torch.tensor(indices))
        if not chosen.any():
            names = ", ".join(data.classes[index] for index in indices)
            raise BadInput(f"No training sample is of class {names}: there is nothing to forget.")
        return _partition(data, chosen, seed, protocol, "class")


@REQUESTS.register("fraction")
@dataclass(frozen=True)
class ForgetFraction:
    """Homogeneous removal (HR): forget a random share of the training samples."""

    fraction: float = 0.1

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario:
        if not 0 < self.fraction < 1:
            raise BadInput(f"The fraction must lie between 0 and 1, got {self.fraction}.")
        total = len(data.train)
        count = round(self.fraction * total)
        if not 0 < count < total:
            problem = "nothing to forget or to retain"
            raise BadInput(f"{self.fraction} of {total} samples is {count}: {problem}.")
        chosen = torch.zeros(total, dtype=torch.bool)
        chosen[torch.randperm(total, generator=seeded(seed, "fraction"))[:count]] = True
        return _partition(data, chosen, seed, protocol)


@REQUESTS.register("random-classes")
@dataclass(frozen=True)
class ForgetRandomClasses:
    """Removal of several random classes.

    With the same seed, a larger count includes the classes of a smaller one.
    """

    count: int

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario:
        order = torch.randperm(data.num_classes, generator=seeded(seed, "random-classes"))
        # An earlier request may have forgotten some classes.
        order = order[torch.isin(order, data.train.labels)]
        if not 0 < self.count < len(order):
            raise BadInput(
                f"The count of classes must lie between 1 and {len(order) - 1}, got {self.count}: "
                f"{data.name} has {len(order)} classes."
            )
        return ForgetClasses(order[: self.count].tolist())(data, seed, protocol)


@REQUESTS.register("samples")
@dataclass(frozen=True)
class ForgetSamples:
    """Removal of single samples by id."""

    ids: tuple[str, ...]

    def __init__(self, ids: Iterable[str | int]) -> None:
        object.__setattr__(self, "ids", tuple(_check_id(name) for name in ids))

    @staticmethod
    def from_file(path: Path) -> "ForgetSamples":
        """Read a file with one id per line.

        Blank lines are ignored, and comments: a # at the start of a line or after a space.
        """
        try:
            # Editors on Windows put a byte-order mark at the start.
            lines = read_text(path, encoding="utf-8-sig", pipes=True).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"The file of ids {path} cannot be read: {error}") from error
        names = [re.split(r"(?:^|\s)#", line)[0].strip() for line in lines]
        return ForgetSamples(name for name in names if name)

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario:
        self._check(data)
        chosen = torch.from_numpy(np.isin(data.train.ids, np.array(self.ids)))
        return _partition(data, chosen, seed, protocol)

    def _check(self, data: Data) -> None:
        """Raise an error unless each id is given once and belongs to a training sample."""
        if not self.ids:
            raise BadInput("No id to forget was given.")
        names, counts = np.unique(np.array(self.ids), return_counts=True)
        if (counts > 1).any():
            raise BadInput(
                f"Duplicated ids: {listed(names[counts > 1].tolist())}. Give each id once."
            )
        known = data.train.ids
        missing = sorted(set(self.ids) - set(known.tolist()))
        test_ids = [] if data.test is None else data.test.ids.tolist()
        in_test = sorted(set(missing) & set(test_ids))
        if in_test:
            raise BadInput(
                f"The model never saw {listed(in_test)}: they are test data of {data.name}. "
                "Leave them out of the request."
            )
        if missing:
            # No suggestion: the most similar id is another sample, perhaps of another person.
            raise BadInput(
                f"Ids that are not in the training data: {listed(missing)}. "
                f"Ids here look like {str(known[0])!r}."
            )


@REQUESTS.register("debias")
@dataclass(frozen=True)
class Debias:
    """Bias removal (DUCK, section Interpretability).

    The scenario has biased data: `count` images of class `true` get a patch and the label `wrong`,
    and as many images of class `wrong` get the patch and keep their label. The original must be
    trained on these data. The forget samples are the mislabelled images.
    """

    true: int | str
    """True class of the mislabelled images: index or name."""
    wrong: int | str
    """Wrong label of these images: index or name."""
    count: int = 200
    patch: int = 4
    """Side of the patch in pixels; it is in the top right corner."""
    colour: tuple[int, ...] = (255, 0, 0)
    """Colour of the patch; images with one channel use the brightest value."""

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario:
        true, wrong = self.classes(data)
        mislabelled = self._draw(data, true, seed)
        confounders = self._draw(data, wrong, seed)
        train = self._patch.paint(data.train, torch.cat([mislabelled, confounders]))
        chosen = torch.zeros(len(data.train), dtype=torch.bool)
        chosen[mislabelled] = True
        biased = replace(data, train=relabelled(train, mislabelled, wrong))
        return _partition(biased, chosen, seed, protocol)

    def classes(self, data: Data) -> tuple[int, int]:
        """Return the indices of `true` and `wrong`."""
        true = _class_index(self.true, data)
        wrong = _class_index(self.wrong, data)
        if true == wrong:
            raise BadInput(f"A bias confuses two classes, and both are {data.classes[true]!r}.")
        return true, wrong

    def corrected(self, scenario: Scenario) -> Data:
        """Return the biased data with corrected labels; the patches stay."""
        true, _ = self.classes(scenario.data)
        return replace(scenario.data, train=relabelled(scenario.data.train, scenario.forget, true))

    def unseen(self, scenario: Scenario, patched: bool = True) -> Examples:
        """Return the reported test images of the true class, with or without the patch."""
        data = scenario.data
        true, _ = self.classes(data)
        if data.test is not None:
            rows = scenario.test[data.test.labels[scenario.test] == true]
            if len(rows):
                images = data.test.take(rows)
                return self._patch.paint(images, torch.arange(len(rows))) if patched else images
        raise BadInput(
            f"{data.name} has no test images of class {data.classes[true]!r}: give test data."
        )

    @property
    def _patch(self) -> Patch:
        return Patch(self.patch, self.colour)

    def _draw(self, data: Data, label: int, seed: int) -> Tensor:
        rows = (data.train.labels == label).nonzero().flatten()
        if not 0 < self.count < len(rows):
            raise BadInput(
                f"{self.count} of the {len(rows)} training images of class {data.classes[label]!r}:"
                " some must be left without."
            )
        order = torch.randperm(len(rows), generator=seeded(seed, "debias", str(label)))
        return rows[order[: self.count]]


def scenario_after(
    previous: Scenario, request: Request, seed: int = 0, protocol: Protocols = "holdout"
) -> Scenario:
    """Apply a request to the samples that a previous scenario retained.

    The forget sets of earlier scenarios are scored again.
    """
    forgotten = EarlierForgetSet(
        _describe_without_ids(previous), previous.kind, previous.data.train.take(previous.forget)
    )
    earlier = (*previous.earlier, forgotten)
    if not len(previous.retain):
        raise BadInput(
            "The earlier request named all training samples, so none are left for another one. "
            "Give its model and the samples of the new request: --weights with --ignore-earlier "
            "and --data, or duck.forget(result.model, samples, ...) in Python."
        )
    left = replace(previous.data, train=previous.data.train.take(previous.retain))
    _check_not_earlier(request, left, earlier)
    return replace(request(left, seed, protocol), earlier=earlier)


def _describe_without_ids(scenario: Scenario) -> str:
    """Describe a forget set for records, which contain no ids."""
    if scenario.kind == "samples":
        return _samples(len(scenario.forget))
    labels = scenario.data.train.labels[scenario.forget].unique().tolist()
    return describe(ForgetClasses(labels), scenario.data.classes)


def _check_not_earlier(request: Request, left: Data, earlier: tuple[EarlierForgetSet, ...]) -> None:
    if isinstance(request, Debias):
        raise BadInput(
            "Bias removal needs a model of the biased data: it cannot follow another request."
        )
    if isinstance(request, ForgetSamples):
        known_ids = set(np.concatenate([previous.forget.ids for previous in earlier]).tolist())
        repeated = [name for name in request.ids if name in known_ids]
        if repeated:
            raise BadInput(f"An earlier request forgot {listed(repeated)} already: leave that out.")
    if isinstance(request, ForgetClasses):
        known_labels = torch.cat([previous.forget.labels for previous in earlier])
        for label in sorted({_class_index(name, left) for name in request.classes}):
            if label in known_labels and label not in left.train.labels:
                name = class_label(label, left.classes)
                raise BadInput(f"An earlier request forgot class {name} already: leave it out.")


def add_copies(request: Request, scenario: Scenario) -> tuple[Request, str]:
    """Add the exact copies of its samples to a request, which becomes a list of ids.

    Return the request and a note, which is empty if copies could not be searched. A request
    without copies does not change.
    """
    if isinstance(request, Debias):
        raise BadInput("with_copies does not go with bias removal: leave it out.")
    copies = copies_in_retain(scenario)
    train = scenario.data.train
    if not len(copies):
        note = "" if train.random else "No exact copies of the requested samples were found."
        return request, note
    rows = torch.cat([scenario.forget, copies]).sort().values
    note = f"Exact copies of requested samples were added to the request: {len(copies):,}."
    return ForgetSamples(train.ids[rows.numpy()].tolist()), note


def class_from_word(word: str, data: Data) -> int | str:
    """Return the class that a word on the command line means, as a request stores it.

    The word is a name or, if no class has that name, an index. A name that equals its own index is
    stored as the index. A class whose name is the index of another class is stored by its name,
    because a reader of the record could not tell them apart.
    """
    index = _class_index(word, data)
    name = data.classes[index]
    if word == name or _is_ambiguous(index, data.classes):
        return index if name == str(index) else name
    return index


def class_label(index: int, classes: Sequence[str]) -> str:
    """Return the name of a class, with its index if the name is the index of another class."""
    name = classes[index] if index < len(classes) else str(index)
    return f"{name!r} (index {index})" if _is_ambiguous(index, classes) else name


def describe(request: Request, classes: Sequence[str] = ()) -> str:
    """Describe a request in a few printable words; `classes` are the names of all classes."""
    return printable(_describe(request, classes))


def describe_forget_set(scenario: Scenario) -> str:
    """Describe the classes or the sample ids of a forget set in a few words."""
    samples = _samples(len(scenario.forget))
    if scenario.kind == "class":
        return f"{_describe_without_ids(scenario)}, {samples}"
    return f"{samples}: {listed(scenario.data.train.ids[scenario.forget.numpy()].tolist())}"


def request_of(scenario: Scenario) -> Request:
    """Return a request for the forget set of a scenario, by its classes or by sample ids."""
    train = scenario.data.train
    if scenario.kind == "class":
        return ForgetClasses(train.labels[scenario.forget].unique().tolist())
    return ForgetSamples(train.ids[scenario.forget.numpy()].tolist())


def _samples(count: int) -> str:
    return f"{count} sample{'' if count == 1 else 's'}"


def _class_or_classes(count: int) -> str:
    return "class" if count == 1 else "classes"


def _describe(request: Request, known: Sequence[str]) -> str:
    match request:
        case ForgetClasses(classes=classes):
            names = ", ".join(class_in_words(name, known) for name in classes)
            return f"{_class_or_classes(len(classes))} {names}"
        case ForgetFraction(fraction=fraction):
            return f"{100 * fraction:g} % of the samples"
        case ForgetRandomClasses(count=count):
            return f"{count} random {_class_or_classes(count)}"
        case ForgetSamples(ids=ids):
            return _samples(len(ids))
        case Debias(true=true, wrong=wrong, count=count):
            true_name = class_in_words(true, known)
            wrong_name = class_in_words(wrong, known)
            return f"{count} patched images of class {true_name} labelled {wrong_name}"
    return str(request)


def _check_id(name: object) -> str:
    value = _to_number(name)
    if isinstance(value, bool):
        raise BadInput(
            "Ids are not true or false: give the places of a mask, mask.nonzero().flatten(), "
            "or the whole mask to duck.forget."
        )
    if isinstance(value, float) or (hasattr(value, "__len__") and not isinstance(value, str)):
        raise BadInput(f"Ids are whole numbers or text, one for each sample; got {value!r}.")
    return str(value)


def _check_class(name: object) -> int | str:
    value = _to_number(name)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BadInput(f"A class is an index or a name, got {value!r}.")
    return value


def _to_number(value: object) -> object:
    """Return the number in a tensor or array with one element; other values do not change."""
    if isinstance(value, Tensor | np.generic | np.ndarray) and len(value.reshape(-1)) == 1:
        return value.item()
    return value


def class_in_words(name: int | str, known: Sequence[str]) -> str:
    """Return the name of a class in a request, or the class as given if names are unknown."""
    index = _find_class(name, known)
    return str(name) if index is None or not known else class_label(index, known)


def _is_ambiguous(index: int, classes: Sequence[str]) -> bool:
    """Return whether the name of a class is the index of another class."""
    name = classes[index] if index < len(classes) else ""
    return _is_index(name) and int(name) != index and int(name) < len(classes)


def _is_index(word: str) -> bool:
    return word.isascii() and word.isdecimal()


def _find_class(name: int | str, classes: Sequence[str]) -> int | None:
    """Return the index of a class, in any range; None if no class has the name."""
    if isinstance(name, int):
        return name
    if name in classes:
        return classes.index(name)
    return int(name) if _is_index(name) else None


def _class_index(name: int | str, data: Data) -> int:
    index = _find_class(name, data.classes)
    if index is None:
        raise BadInput(
            f"{data.name} has no class {name!r}. {suggest(str(name), list(data.classes))}"
        )
    if not 0 <= index < data.num_classes:
        raise BadInput(
            f"Class {index} is out of range: {data.name} has classes 0 to {data.num_classes - 1}."
        )
    return index


def check_retain(scenario: Scenario) -> None:
    """Raise an error if no sample is retained, for what trains models without the forget set."""
    if not len(scenario.retain):
        raise BadInput(
            "The request has all training samples, so there is nothing to retrain on. Give retain "
            "samples, too."
        )


def _partition(
    data: Data,
    chosen: Tensor,
    seed: int,
    protocol: Protocols,
    kind_alone: Literal["class", "samples"] = "samples",
) -> Scenario:
    """Return the scenario that forgets the chosen rows.

    kind_alone   the kind where no sample is retained, which would show it
    """
    forget = chosen.nonzero().flatten()
    retain = (~chosen).nonzero().flatten()
    labels = data.train.labels
    remains = torch.isin(labels[forget], labels[retain])
    kind: Literal["class", "samples"] = "samples" if remains.any() else "class"
    if not len(retain):
        kind = kind_alone
    # Without retain samples nothing shows which classes the model does not know (any more).
    known = labels if len(retain) else torch.arange(data.num_classes)
    holdout, test = _test_rows(data, protocol, known)
    forget_test = retain_test = torch.empty(0, dtype=torch.int64)
    if kind == "class" and data.test is not None:
        is_forgotten = torch.isin(data.test.labels[test], labels[forget])
        forget_test = test[is_forgotten]
        retain_test = test[~is_forgotten]
    return Scenario(
        data, kind, seed, protocol, forget, retain, holdout, test, forget_test, retain_test
    )


def _test_rows(data: Data, protocol: Protocols, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of the test split for the holdout and for reporting.

    Classes that the model does not know, which an earlier request forgot, are left out.
    """
    if data.test is None:
        rows = torch.arange(0)
    else:
        rows = torch.isin(data.test.labels, known).nonzero().flatten()
    if protocol == "paper":
        return rows, rows
    holdout = data.holdout[torch.isin(data.holdout, rows)]
    return holdout, rows[~torch.isin(rows, data.holdout)]
