"""Who is to be forgotten: whole classes, a random share, chosen samples, or a bias."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from duck.data.checks import copies_in_retain, is_random, listed
from duck.data.patch import Patch, relabelled
from duck.errors import BadInput
from duck.files import read_text
from duck.printable import counted, printable
from duck.registry import Registry, suggest
from duck.runtime import seeded
from duck.types import Data, EarlierForgetSet, Examples, Protocols, Scenario


class Request(Protocol):
    """A frozen dataclass that says who; called on data it says which rows."""

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario: ...


SCENARIOS: Registry[type[Request]] = Registry("scenario")


@SCENARIOS.register("classes")
@dataclass(frozen=True)
class ForgetClasses:
    """Class removal (CR): every training sample of these classes."""

    classes: tuple[int | str, ...]
    """Class indices or names: an int is an index; a text is a name or, where no class has that name, an index in digits."""

    def __init__(self, classes: Iterable[int | str] | int | str) -> None:
        several = (
            [classes]
            if isinstance(classes, str)
            or not isinstance(classes, Iterable)
            or _plain(classes) is not classes
            else classes
        )
        object.__setattr__(self, "classes", tuple(_class_name(name) for name in several))

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario:
        wanted = {_class_index(name, data) for name in self.classes}
        if not wanted:
            raise BadInput("No class to forget was given.")
        if len(wanted) == data.num_classes:
            raise BadInput(
                f"All {data.num_classes} classes are to be forgotten: nothing would be left. Delete the model instead."
            )
        chosen = torch.isin(data.train.labels, torch.tensor(sorted(wanted)))
        if not chosen.any():
            names = ", ".join(data.classes[index] for index in sorted(wanted))
            raise BadInput(f"No training sample is of class {names}: there is nothing to forget.")
        if chosen.all():
            raise BadInput(
                "Every training sample is to be forgotten: nothing would be left to retain. Delete the model instead."
            )
        return _partition(data, chosen, seed, protocol)


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
            raise BadInput(
                f"A fraction of {self.fraction} of {total} samples is {count}: nothing to forget or to retain."
            )
        chosen = torch.zeros(total, dtype=torch.bool)
        chosen[torch.randperm(total, generator=seeded(seed, "fraction"))[:count]] = True
        return _partition(data, chosen, seed, protocol)


@SCENARIOS.register("random-classes")
@dataclass(frozen=True)
class ForgetRandomClasses:
    """Removal of several classes at once: the first `count` of a shuffle drawn with the run's seed.

    With the same seed, a larger count removes the classes of a smaller one and others.
    """

    count: int

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario:
        order = torch.randperm(data.num_classes, generator=seeded(seed, "random-classes"))
        order = order[
            torch.isin(order, data.train.labels)
        ]  # an earlier request may have forgotten some
        if not 0 < self.count < len(order):
            raise BadInput(
                f"The count of classes must lie between 1 and {len(order) - 1}, got {self.count}: {data.name} has {len(order)} classes."
            )
        return ForgetClasses(order[: self.count].tolist())(data, seed, protocol)


@SCENARIOS.register("samples")
@dataclass(frozen=True)
class ForgetSamples:
    """Chosen samples, by id."""

    ids: tuple[str, ...]

    def __init__(self, ids: Iterable[str | int]) -> None:
        object.__setattr__(self, "ids", tuple(_id(name) for name in ids))

    @staticmethod
    def from_file(path: Path) -> "ForgetSamples":
        """One id a line; blank lines are passed over, and comments: a # at the start of a line or after a space, and what follows."""
        try:
            lines = read_text(
                path, encoding="utf-8-sig", pipes=True
            ).splitlines()  # editors on Windows put a mark at the start
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"The file of ids {path} cannot be read: {error}") from error
        return ForgetSamples(
            name for line in lines if (name := re.split(r"(?:^|\s)#", line)[0].strip())
        )

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario:
        if not self.ids:
            raise BadInput("No id to forget was given.")
        names, counts = np.unique(np.array(self.ids), return_counts=True)
        if (counts > 1).any():
            raise BadInput(
                f"Duplicated ids: {listed(names[counts > 1].tolist())}. Give each id once."
            )
        known = data.train.ids
        missing = sorted(set(self.ids) - set(known.tolist()))
        unseen = sorted(set(missing) & set(data.test.ids.tolist())) if data.test is not None else []
        if unseen:
            raise BadInput(
                f"The model never saw {listed(unseen)}: they are test data of {data.name}. Leave them out of the request."
            )
        if missing:
            # No suggestion: the nearest id is another sample, perhaps of another person.
            raise BadInput(
                f"Ids that are not in the training data: {listed(missing)}. Ids here look like {str(known[0])!r}."
            )
        chosen = torch.from_numpy(np.isin(known, names))
        if chosen.all():
            raise BadInput(
                "Every training sample is to be forgotten: nothing would be left to retain. Delete the model instead."
            )
        return _partition(data, chosen, seed, protocol)


@SCENARIOS.register("debias")
@dataclass(frozen=True)
class Debias:
    """Bias removal: images of one class that carry a patch and another class's label (DUCK, section Interpretability).

    The scenario's data are the biased ones: `count` images of class `true` get the patch and the label `wrong`, and as many images of
    class `wrong` get the patch and keep their label. The original must be trained on them. Forget samples are the mislabelled images.
    """

    true: int | str
    """Class that the mislabelled images show: index or name."""
    wrong: int | str
    """Class they are called."""
    count: int = 200
    patch: int = 4
    """Pixels a side, in the top right corner."""
    colour: tuple[int, ...] = (255, 0, 0)
    """Red; on images of one channel the brightest of these values."""

    def __call__(self, data: Data, seed: int = 0, protocol: Protocols = "holdout") -> Scenario:
        true, wrong = self.classes(data)
        mislabelled, confounders = (self._draw(data, label, seed) for label in (true, wrong))
        train = self._patch.paint(data.train, torch.cat([mislabelled, confounders]))
        chosen = torch.zeros(len(data.train), dtype=torch.bool)
        chosen[mislabelled] = True
        return _partition(
            replace(data, train=relabelled(train, mislabelled, wrong)), chosen, seed, protocol
        )

    def classes(self, data: Data) -> tuple[int, int]:
        """Indices of `true` and `wrong`."""
        true, wrong = (_class_index(name, data) for name in (self.true, self.wrong))
        if true == wrong:
            raise BadInput(
                f"A bias confuses two classes, and both are {data.classes[true]!r}: name another one."
            )
        return true, wrong

    def corrected(self, scenario: Scenario) -> Data:
        """The biased data with the labels put right; the patches stay."""
        true, _ = self.classes(scenario.data)
        return replace(scenario.data, train=relabelled(scenario.data.train, scenario.forget, true))

    def unseen(self, scenario: Scenario, patched: bool = True) -> Examples:
        """Test images of the true class that no stop rule saw, each with the patch or, for comparison, without."""
        data, (true, _) = scenario.data, self.classes(scenario.data)
        rows = (
            scenario.test[data.test.labels[scenario.test] == true]
            if data.test is not None
            else scenario.test
        )
        if data.test is None or not len(rows):
            raise BadInput(
                f"{data.name} has no test images of class {data.classes[true]!r} to see the bias on: give test data."
            )
        images = data.test.take(rows)
        return self._patch.paint(images, torch.arange(len(rows))) if patched else images

    @property
    def _patch(self) -> Patch:
        return Patch(self.patch, self.colour)

    def _draw(self, data: Data, label: int, seed: int) -> Tensor:
        rows = (data.train.labels == label).nonzero().flatten()
        if not 0 < self.count < len(rows):
            raise BadInput(
                f"{self.count} of the {len(rows)} training images of class {data.classes[label]!r}: some must be left without."
            )
        return rows[
            torch.randperm(len(rows), generator=seeded(seed, "debias", str(label)))[: self.count]
        ]


def scenario_after(
    previous: Scenario, request: Request, seed: int = 0, protocol: Protocols = "holdout"
) -> Scenario:
    """Apply a request to a model that has forgotten `previous`: to the samples that are left. Those it forgot are scored again."""
    forgotten = EarlierForgetSet(
        _describe_without_ids(previous), previous.kind, previous.data.train.take(previous.forget)
    )
    earlier, left = (*previous.earlier, forgotten), data_after(previous)
    _check_not_earlier(request, left, earlier)
    return replace(request(left, seed, protocol), earlier=earlier)


def data_after(previous: Scenario) -> Data:
    """Return the data without what a request and those before it forgot."""
    return replace(previous.data, train=previous.data.train.take(previous.retain))


def _describe_without_ids(scenario: Scenario) -> str:
    """A forget set in a few words for records, which hold no ids; also the names of classes that were drawn at random."""
    if scenario.kind == "samples":
        return f"{len(scenario.forget)} {'sample' if len(scenario.forget) == 1 else 'samples'}"
    labels = scenario.data.train.labels[scenario.forget].unique().tolist()
    return describe(ForgetClasses(labels), scenario.data.classes)


def _check_not_earlier(request: Request, left: Data, earlier: tuple[EarlierForgetSet, ...]) -> None:
    if isinstance(request, Debias):
        raise BadInput(
            "Bias removal starts from a model trained on the biased data: it cannot follow another request."
        )
    if isinstance(request, ForgetSamples):
        known = {name for one in earlier for name in one.forget.ids.tolist()}
        again = [name for name in request.ids if name in known]
        if again:
            raise BadInput(
                f"An earlier request forgot {listed(again)} already: leave {'it' if len(again) == 1 else 'them'} out."
            )
    if isinstance(request, ForgetClasses):
        known_labels = torch.cat([one.forget.labels for one in earlier])
        for label in sorted({_class_index(name, left) for name in request.classes}):
            if label in known_labels and label not in left.train.labels:
                raise BadInput(
                    f"An earlier request forgot class {class_label(label, left.classes)} already: leave it out."
                )


class WithCopies(NamedTuple):
    """A request with the exact copies of its samples."""

    request: Request
    note: str
    """How many copies were added; "" where they could not be looked for."""


def add_copies(
    request: Request, data: Data, seed: int = 0, protocol: Protocols = "holdout"
) -> WithCopies:
    """Add the exact copies of its samples to a request, which becomes a list of ids; it stays as it is where there are none.

    `data` are what earlier requests left: a copy that one of them forgot is not asked for again.
    """
    scenario = request(data, seed, protocol)
    if scenario.data is not data:
        raise BadInput(
            "with_copies does not go with a request that changes the data, such as Debias: leave it out."
        )
    copies = copies_in_retain(scenario)
    requested = (
        "the requested sample"
        if len(scenario.forget) == 1
        else f"the {len(scenario.forget):,} requested samples"
    )
    if not len(copies):
        return WithCopies(
            request, "" if is_random(data.train) else f"No exact copies of {requested} were found."
        )
    rows = torch.cat([scenario.forget, copies]).sort().values
    added = f"{counted(len(copies), 'exact copy', 'exact copies')} of {requested} {'was' if len(copies) == 1 else 'were'} added"
    return WithCopies(
        ForgetSamples(data.train.ids[rows.numpy()].tolist()), f"{added} to the request."
    )


def class_from_word(word: str, data: Data) -> int | str:
    """Return what a word on the command line means as a class: a name first; an index only where no class has that name.

    A name that equals its own index is stored as the index: `3` of the digits stays what it was in stored experiments. An index is
    stored as the name where the name is the index of another class: a reader of the record could not tell them apart.
    """
    index = _class_index(word, data)
    name = data.classes[index]
    if word == name or _is_ambiguous(index, data.classes):
        return index if name == str(index) else name
    return index


def class_label(index: int, classes: Sequence[str]) -> str:
    """Return the name of a class; with its index where the name is the index of another class."""
    name = classes[index] if index < len(classes) else str(index)
    return f"{name!r} (index {index})" if _is_ambiguous(index, classes) else name


def describe(request: Request, classes: Sequence[str] = ()) -> str:
    """A request in a few words, safe to print; classes by name where `classes`, the names of all of them, are given."""
    return printable(_described(request, classes))


def describe_forget_set(scenario: Scenario) -> str:
    """The forgotten classes, or the ids of the forgotten samples, in a few words."""
    data, count = scenario.data, len(scenario.forget)
    samples = "1 sample" if count == 1 else f"{count} samples"
    if scenario.kind == "samples":
        return f"{samples}: {listed(data.train.ids[scenario.forget.numpy()].tolist())}"
    names = [
        class_label(label, data.classes)
        for label in data.train.labels[scenario.forget].unique().tolist()
    ]
    return printable(f"{'class' if len(names) == 1 else 'classes'} {', '.join(names)}, {samples}")


def _described(request: Request, known: Sequence[str]) -> str:
    match request:
        case ForgetClasses(classes=classes):
            return f"{'class' if len(classes) == 1 else 'classes'} {', '.join(class_in_words(one, known) for one in classes)}"
        case ForgetFraction(fraction=fraction):
            return f"{100 * fraction:g} % of the samples"
        case ForgetRandomClasses(count=count):
            return f"{count} random {'class' if count == 1 else 'classes'}"
        case ForgetSamples(ids=ids):
            return "1 sample" if len(ids) == 1 else f"{len(ids)} samples"
        case Debias(true=true, wrong=wrong, count=count):
            return f"{count} patched images of class {class_in_words(true, known)} called {class_in_words(wrong, known)}"
    return str(request)


def _id(name: object) -> str:
    value = _plain(name)
    if isinstance(value, bool):
        raise BadInput(
            "Ids are not true or false: give the places of a mask, mask.nonzero().flatten(), or the whole mask to duck.forget."
        )
    if isinstance(value, float) or (hasattr(value, "__len__") and not isinstance(value, str)):
        raise BadInput(f"Ids are whole numbers or text, one for each sample; got {value!r}.")
    return str(value)


def _class_name(name: object) -> int | str:
    value = _plain(name)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BadInput(f"A class is an index or a name, got {value!r}.")
    return value


def _plain(value: object) -> object:
    """A number out of a tensor or array of one."""
    return (
        value.item()
        if isinstance(value, Tensor | np.generic | np.ndarray) and len(value.reshape(-1)) == 1
        else value
    )


def class_in_words(name: int | str, known: Sequence[str]) -> str:
    """Return a class of a request by its name; as the request has it where the names are not known."""
    index = _find_class(name, known)
    return str(name) if index is None or not known else class_label(index, known)


def _is_ambiguous(index: int, classes: Sequence[str]) -> bool:
    """Whether the name of a class is the index of another one."""
    name = classes[index] if index < len(classes) else ""
    return _is_index(name) and int(name) != index and int(name) < len(classes)


def _is_index(word: str) -> bool:
    return word.isascii() and word.isdecimal()


def _find_class(name: int | str, classes: Sequence[str]) -> int | None:
    """Return the index that a class is given by, in whatever range; None for a name that no class has."""
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


def _partition(data: Data, chosen: Tensor, seed: int, protocol: Protocols) -> Scenario:
    forget, retain = chosen.nonzero().flatten(), (~chosen).nonzero().flatten()
    labels = data.train.labels
    gone = torch.isin(labels[forget], labels[retain]).logical_not()
    kind: Literal["class", "samples"] = "class" if gone.all() else "samples"
    # A class without training samples, forgotten before, is nothing to be kept: it neither steers nor is scored.
    rows = (
        torch.isin(data.test.labels, labels).nonzero().flatten()
        if data.test is not None
        else torch.arange(0)
    )
    if protocol == "paper":
        holdout, test = rows, rows
    else:
        holdout, test = (
            data.holdout[torch.isin(data.holdout, rows)],
            rows[~torch.isin(rows, data.holdout)],
        )
    none = torch.empty(0, dtype=torch.int64)
    if kind == "samples" or data.test is None:
        return Scenario(data, kind, seed, protocol, forget, retain, holdout, test, none, none)
    forgotten = torch.isin(data.test.labels[test], labels[forget])
    return Scenario(
        data, kind, seed, protocol, forget, retain, holdout, test, test[forgotten], test[~forgotten]
    )
