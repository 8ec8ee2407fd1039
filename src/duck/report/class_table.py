"""Accuracy of each class before and after unlearning, from the stored confusion matrices."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from duck.report.numbers import accuracy_with_interval
from duck.report.records import StoredRun
from duck.types import Estimate

MAX_PLOT_CLASSES = 16
"""Classes in a plot. Of more classes it shows the forgotten ones and their neighbours."""
NEIGHBOURS_PER_CLASS = 3
"""Neighbours of each forgotten class."""

ConfusionMatrix = dict[str, dict[str, int]]
"""True class -> predicted class -> number of samples. Zeros are left out."""
Role = Literal["forgotten", "neighbour", "other"]
ROLES: tuple[Role, ...] = ("forgotten", "neighbour", "other")


@dataclass(frozen=True)
class ClassRow:
    """The accuracy of one class on unseen samples."""

    index: int
    name: str
    n: int
    before: Estimate
    after: Estimate
    role: Role

    @property
    def change(self) -> float:
        return self.after.value - self.before.value


def confusion_matrices(stored: StoredRun) -> tuple[ConfusionMatrix, ConfusionMatrix] | None:
    """Return the confusion matrices before and after unlearning, if they were stored."""
    before = stored.run.by_class.original
    after = stored.run.by_class.unlearned
    return (before, after) if before and after else None


def class_name(stored: StoredRun, index: int) -> str:
    """Return the name of a class, or its number if no name was stored."""
    return stored.class_names[index] if index < len(stored.class_names) else str(index)


def class_rows(stored: StoredRun) -> list[ClassRow]:
    """Return a row for each class: first forgotten classes, then neighbours, then others.

    Within a role, the class that lost most accuracy is first.
    """
    matrices = confusion_matrices(stored)
    if matrices is None:
        return []
    neighbours = find_neighbours(stored)
    rows = []
    for index, name in enumerate(stored.class_names):
        n = sum(matrices[0].get(str(index), {}).values())
        if n:
            before, after = (_class_accuracy(matrix, index, n) for matrix in matrices)
            role: Role = "neighbour" if index in neighbours else "other"
            if index in stored.forgotten_classes:
                role = "forgotten"
            rows.append(ClassRow(index, name, n, before, after, role))
    return sorted(rows, key=lambda row: (ROLES.index(row.role), row.change))


def _class_accuracy(matrix: ConfusionMatrix, index: int, n: int) -> Estimate:
    correct = matrix.get(str(index), {}).get(str(index), 0)
    accuracy = accuracy_with_interval(correct / n, n)
    assert accuracy is not None
    return accuracy


def find_neighbours(stored: StoredRun) -> list[int]:
    """Return the classes that are most often confused with forgotten ones, before or after."""
    matrices = confusion_matrices(stored)
    if matrices is None:
        return []
    forgotten = set(stored.forgotten_classes)
    counts: Counter[int] = Counter()
    for matrix in matrices:
        for true, predicted, count in _cells(matrix):
            if (true in forgotten) != (predicted in forgotten):
                counts[predicted if true in forgotten else true] += count
    order = sorted(counts, key=lambda index: (-counts[index], index))
    return order[: NEIGHBOURS_PER_CLASS * len(forgotten)]


def _cells(matrix: ConfusionMatrix) -> Iterator[tuple[int, int, int]]:
    for true, row in matrix.items():
        for predicted, count in row.items():
            yield int(true), int(predicted), count


def choose_classes(stored: StoredRun) -> list[int]:
    """Return the classes that a plot shows: all of a few, of many those nearest to the request."""
    if len(stored.class_names) <= MAX_PLOT_CLASSES:
        return list(range(len(stored.class_names)))
    by_relevance = dict.fromkeys([*stored.forgotten_classes, *find_neighbours(stored)])
    by_relevance |= dict.fromkeys(row.index for row in class_rows(stored))
    return sorted(list(by_relevance)[:MAX_PLOT_CLASSES])
