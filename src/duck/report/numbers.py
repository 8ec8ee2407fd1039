"""Measurements with their intervals: accuracies, AUS, and means over runs."""

import statistics
from collections.abc import Sequence
from itertools import product

from duck.audits.intervals import clopper_pearson
from duck.metrics import aus
from duck.types import Estimate


def accuracy_with_interval(value: float | None, n: int | None) -> Estimate | None:
    """Return an accuracy over n samples with its exact interval (Clopper and Pearson)."""
    if value is None:
        return None
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
