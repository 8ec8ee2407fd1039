"""Measurements with their intervals: accuracies, AUS, and means over runs."""

import math
from collections.abc import Sequence
from itertools import product

from duck.audits.intervals import clopper_pearson
from duck.metrics import aus
from duck.types import Estimate


def accuracy_with_interval(value: float | None, n: int | None) -> Estimate | None:
    """Return an accuracy over n samples with its exact interval (Clopper and Pearson)."""
    if value is None:
        return None
    if not n:
        return Estimate(value)
    return Estimate(value, *clopper_pearson(round(value * n), n))


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
    if original is None or retain_ends is None or forget_ends is None:
        return Estimate(score)
    pairs = [*product(retain_ends, forget_ends), *_equal_pairs(retain_ends, forget_ends)]
    scores = [aus(kind, original, test, forgotten) for test, forgotten in pairs]
    return Estimate(score, min(score, *scores), max(score, *scores))


def _ends(measurement: Estimate | None) -> tuple[float, float] | None:
    if measurement is None or measurement.low is None or measurement.high is None:
        return None
    return measurement.low, measurement.high


def _equal_pairs(
    first: tuple[float, float], second: tuple[float, float]
) -> list[tuple[float, float]]:
    """Return the ends of the part that both intervals share, each as a pair of equal values.

    If samples are removed, AUS is highest where the two accuracies are equal. That can lie between
    the corners.
    """
    low = max(first[0], second[0])
    high = min(first[1], second[1])
    return [(low, low), (high, high)] if low <= high else []


def mean_and_spread(values: list[float]) -> Estimate:
    """Return the mean and, for several values, one standard deviation to each side."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return Estimate(mean)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return Estimate(mean, mean - spread, mean + spread)


def interval_ends(measurements: Sequence[Estimate]) -> tuple[list[float], list[float]]:
    """Return the lower and the upper ends; without an interval both are the value."""
    low = [one.value if one.low is None else one.low for one in measurements]
    high = [one.value if one.high is None else one.high for one in measurements]
    return low, high
