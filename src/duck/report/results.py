"""A result of unlearning with its labels and measurements, from a stored run or from a bench."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from duck.audits.statistics import clopper_pearson
from duck.bench.results import BenchCurve
from duck.experiment import Experiment, to_dict
from duck.json_text import to_json
from duck.methods.base import METHODS
from duck.metrics import aus
from duck.printable import counted
from duck.report.groups import Group, group_of
from duck.scenarios import ForgetClasses, ForgetFraction, ForgetRandomClasses, Request, describe
from duck.types import Estimate

MAX_LIST_LETTERS = 48
"""Longer lists of names are shortened."""
SHORT_LIST_NAMES = 3
"""Names that a shortened list shows."""
MAX_NAME_LETTERS = 25
"""Longer names are cut where room is short."""

Scores = Mapping[str, float | None]
Splits = Mapping[str, Mapping[str, float | None]]
"""Split -> class -> log density."""


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of one method on one request."""

    name: str
    experiment: Experiment
    kind: str
    scores: Scores
    original: Scores
    samples: Mapping[str, int]
    seconds: float
    preset: str = ""
    """Empty for a stored run."""
    variant: str = ""
    """What a bench changed in the method, such as "no forget loss"."""
    is_timed: bool = True
    """Whether the run was alone on its device. If not, its time is not shown."""
    attack: str = ""
    roc: BenchCurve | None = None
    """What an attack of a bench measured."""
    densities: Splits | None = None
    """What the study `density` of a bench measured."""
    forgotten_classes: Sequence[int] = ()

    @property
    def is_unlearning(self) -> bool:
        """Whether it has accuracies. Attacks and studies of a bench have other measurements."""
        return self.roc is None and self.densities is None

    @property
    def request(self) -> Request:
        assert self.experiment.request is not None
        return self.experiment.request

    @property
    def data(self) -> str:
        return self.experiment.training.data

    @cached_property
    def group(self) -> Group:
        """Results of different groups do not belong in one plot."""
        return group_of(self.experiment.training)

    @property
    def method(self) -> str:
        assert self.experiment.method is not None
        return METHODS.name_of(self.experiment.method)

    @property
    def label(self) -> str:
        """The method with its variant: the name in tables and figures."""
        return f"{self.method}, {self.variant}" if self.variant else self.method

    @property
    def label_with_preset(self) -> str:
        return f"{self.label} ({self.preset})" if self.preset else self.label

    @cached_property
    def request_label(self) -> str:
        """The request in a few words. Long lists of classes are shortened."""
        if not isinstance(self.request, ForgetClasses):
            return self.request_text
        word = "class" if self.class_count == 1 else "classes"
        names = shorten_list([str(name) for name in self.request.classes])
        return f"{word} {names}{self._earlier_note}"

    @cached_property
    def request_text(self) -> str:
        """The request with every class."""
        return describe(self.request) + self._earlier_note

    @property
    def _earlier_note(self) -> str:
        """The number of earlier requests. Runs that start from other models differ in it."""
        count = len(self.experiment.earlier)
        return f" (after {counted(count, 'earlier request')})" if count else ""

    @property
    def class_count(self) -> int | None:
        """The number of forgotten classes, or None if samples are forgotten."""
        match self.request:
            case ForgetClasses(classes=classes):
                return len(classes)
            case ForgetRandomClasses(count=count):
                return count
        return None

    @property
    def is_random(self) -> bool:
        """Whether the classes or samples were chosen at random."""
        return isinstance(self.request, ForgetRandomClasses | ForgetFraction)

    @property
    def scenario(self) -> str:
        """Results of different scenarios cannot be compared."""
        if self.kind != "class":
            return "samples"
        return "one class" if (self.class_count or 1) == 1 else "several classes"

    @property
    def request_size(self) -> tuple[str, int | str | None]:
        """How much is forgotten. Only results that agree in it can be averaged."""
        return self.scenario, self.class_count if self.kind == "class" else self.request_label

    def accuracy(self, split: str, scores: Scores | None = None) -> Estimate | None:
        """Return the accuracy on a split with its interval, by default of the unlearned model."""
        value = (self.scores if scores is None else scores).get(split)
        return None if value is None else accuracy_with_interval(value, self.samples.get(split))

    @property
    def retain_split(self) -> str:
        """The split of the accuracy that AUS wants unchanged."""
        return "retain_test" if self.kind == "class" else "test"

    @property
    def forget_split(self) -> str:
        """The split of the accuracy that AUS wants low."""
        return "forget_test" if self.kind == "class" else "forget"

    @property
    def retain_accuracy(self) -> Estimate | None:
        return self.accuracy(self.retain_split)

    @property
    def forget_accuracy(self) -> Estimate | None:
        return self.accuracy(self.forget_split)

    @property
    def aus(self) -> Estimate | None:
        original = self.original.get(self.retain_split)
        accuracies = self.retain_accuracy, self.forget_accuracy
        return aus_with_range(self.kind, self.scores.get("aus"), original, *accuracies)

    @property
    def drop(self) -> float | None:
        """The cost of unlearning: accuracy of the original minus that of the unlearned model."""
        before = self.original.get(self.retain_split)
        after = self.scores.get(self.retain_split)
        return None if before is None or after is None else before - after

    @property
    def delta(self) -> float | None:
        """What the model still remembers, as AUS defines it."""
        retain = self.scores.get(self.retain_split)
        forget = self.scores.get(self.forget_split)
        if retain is None or forget is None:
            return None
        return forget if self.kind == "class" else abs(retain - forget)

    @cached_property
    def comparison_key(self) -> str:
        """Results with the same key answer the same request on the same original.

        It is everything in the experiment except the method, as text.
        """
        return to_json({**to_dict(self.experiment), "method": None}, sort_keys=True)


def shorten_list(names: Sequence[str]) -> str:
    """Join names with commas; of a long list, show the first few and count the others."""
    full_list = ", ".join(names)
    if len(full_list) <= MAX_LIST_LETTERS:
        return full_list
    first_names = ", ".join(shorten_name(name) for name in names[:SHORT_LIST_NAMES])
    others = len(names) - SHORT_LIST_NAMES
    return first_names if others <= 0 else f"{first_names} and {counted(others, 'other')}"


def shorten_name(name: str) -> str:
    """Cut a long name. It is shown in full elsewhere on the page."""
    return name if len(name) <= MAX_NAME_LETTERS else f"{name[: MAX_NAME_LETTERS - 1]}…"


def accuracy_with_interval(value: float, n: int | None) -> Estimate:
    """Return an accuracy over n samples with its exact interval (Clopper and Pearson)."""
    return Estimate(value, *clopper_pearson(round(value * n), n)) if n else Estimate(value)


def aus_with_range(
    kind: str,
    score: float | None,
    original: float | None,
    retain: Estimate | None,
    forget: Estimate | None,
) -> Estimate | None:
    """Return the AUS with the values it can take while both accuracies stay in their intervals.

    The accuracy of the original is taken as exact.
    """
    if score is None:
        return None
    retain_ends = _ends(retain)
    forget_ends = _ends(forget)
    if original is None or not retain_ends or not forget_ends:
        return Estimate(score)
    pairs = list(product(retain_ends, forget_ends))
    # If samples are removed, AUS is highest where the two accuracies are equal. That can lie
    # between the corners: at the ends of the part that both intervals share.
    low = max(retain_ends[0], forget_ends[0])
    high = min(retain_ends[1], forget_ends[1])
    if low <= high:
        pairs += [(low, low), (high, high)]
    scores = [aus(kind, original, *pair) for pair in pairs]
    return Estimate(score, min(score, *scores), max(score, *scores))


def _ends(estimate: Estimate | None) -> tuple[float, float] | None:
    if estimate is None or estimate.low is None or estimate.high is None:
        return None
    return estimate.low, estimate.high


def mean_and_spread(values: Sequence[float]) -> Estimate:
    """Return the mean and, for several values, one standard deviation to each side."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean)
    spread = statistics.stdev(values)
    return Estimate(mean, mean - spread, mean + spread)
