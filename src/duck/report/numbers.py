"""Numbers with their uncertainty: intervals of accuracies, and what they leave open of the AUS."""

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from duck.audits.intervals import clopper_pearson
from duck.metrics import aus


class Measured(NamedTuple):
    """A value and its 95 % interval; no interval where none is known."""

    value: float
    low: float | None = None
    high: float | None = None


def share(value: float | None, n: int | None) -> Measured | None:
    """An accuracy over n samples, with the exact interval (Clopper and Pearson)."""
    if value is None:
        return None
    if not n:
        return Measured(value)
    return Measured(value, *clopper_pearson(round(value * n), n))


def aus_range(
    kind: str,
    score: float | None,
    original: float | None,
    kept: Measured | None,
    gone: Measured | None,
) -> Measured | None:
    """The AUS with all that it could be while both accuracies stay within their intervals; the original's is taken as it is."""
    if (
        score is None
        or original is None
        or kept is None
        or gone is None
        or kept.low is None
        or gone.low is None
    ):
        return None if score is None else Measured(score)
    assert kept.high is not None
    assert gone.high is not None
    corners = list(product((kept.low, kept.high), (gone.low, gone.high)))
    # Where samples are removed the two accuracies should be equal: that ridge may lie inside.
    ridge = [
        (at, at)
        for at in (max(kept.low, gone.low), min(kept.high, gone.high))
        if kept.low <= at <= kept.high and gone.low <= at <= gone.high
    ]
    found = [aus(kind, original, test, forget) for test, forget in (*corners, *ridge)]
    return Measured(score, min(score, *found), max(score, *found))


def mean_and_spread(values: list[float]) -> Measured:
    """The mean, and one standard deviation to each side where there are several."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return Measured(mean)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return Measured(mean, mean - spread, mean + spread)


def spread_ends(means: Sequence[Measured]) -> tuple[list[float], list[float]]:
    """Lower and upper ends of `mean_and_spread`; the value itself where there is no spread."""
    low = [mean.value if mean.low is None else mean.low for mean in means]
    high = [mean.value if mean.high is None else mean.high for mean in means]
    return low, high
