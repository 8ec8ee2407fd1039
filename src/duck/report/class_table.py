"""Accuracy of each class before and after unlearning, from the stored confusion matrices."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

from duck.metrics import Confusion
from duck.report.records import StoredRun
from duck.report.results import accuracy_with_interval
from duck.types import Estimate

MAX_PLOT_CLASSES = 16
"""Classes in a plot. Of more classes it shows the forgotten ones and their neighbours."""
NEIGHBOURS_PER_CLASS = 3
"""Neighbours of each forgotten class."""

Role = Literal["forgotten", "neighbour", "other"]


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


def confusion_matrices(stored: StoredRun) -> tuple[Confusion, Confusion] | None:
    """Return the confusion matrices before and after unlearning, if they were stored."""
    before = stored.run.by_class.original
    after = stored.run.by_class.unlearned
    return (before, after) if before and after else None


def class_rows(stored: StoredRun) -> list[ClassRow]:
    """Return a row for each class: first forgotten classes, then neighbours, then others.

    Within a role, the class that lost most accuracy is first.
    """
    matrices = confusion_matrices(stored)
    if matrices is None:
        return []
    roles: dict[int, Role] = dict.fromkeys(find_neighbours(stored), "neighbour")
    roles |= dict.fromkeys(stored.forgotten_classes, "forgotten")
    rows = []
    for index, name in enumerate(stored.class_names):
        n = sum(matrices[0].get(str(index), {}).values())
        if n:
            correct = [matrix.get(str(index), {}).get(str(index), 0) for matrix in matrices]
            before, after = (accuracy_with_interval(count / n, n) for count in correct)
            rows.append(ClassRow(index, name, n, before, after, roles.get(index, "other")))
    return sorted(rows, key=lambda row: (get_args(Role).index(row.role), row.change))


def find_neighbours(stored: StoredRun) -> list[int]:
    """Return the classes that are most often confused with forgotten ones, before or after."""
    forgotten = set(stored.forgotten_classes)
    counts: Counter[int] = Counter()
    for matrix in confusion_matrices(stored) or ():
        for true, row in matrix.items():
            for predicted, count in row.items():
                pair = {int(true), int(predicted)}
                if len(pair & forgotten) == 1:
                    counts.update(dict.fromkeys(pair - forgotten, count))
    order = sorted(counts, key=lambda index: (-counts[index], index))
    return order[: NEIGHBOURS_PER_CLASS * len(forgotten)]


def choose_classes(stored: StoredRun) -> list[int]:
    """Return the classes that a plot shows: all of a few, of many those nearest to the request."""
    if len(stored.class_names) <= MAX_PLOT_CLASSES:
        return list(range(len(stored.class_names)))
    by_relevance = [*stored.forgotten_classes, *find_neighbours(stored)]
    by_relevance += [row.index for row in class_rows(stored)]
    return sorted(list(dict.fromkeys(by_relevance))[:MAX_PLOT_CLASSES])
