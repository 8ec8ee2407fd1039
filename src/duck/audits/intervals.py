"""Intervals: exact binomial bounds, prediction intervals, corrections for several tests."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv
from scipy.stats import t as student

from duck.errors import BadInput

LEVEL = 0.95
Alternative = Literal["two-sided", "greater"]


class SampleEstimate(NamedTuple):
    """A value with its 95 % interval and the number of observations behind it."""

    value: float
    low: float
    high: float
    n: int


def upper_rate(
    count: npt.ArrayLike, n: npt.ArrayLike, level: float = LEVEL
) -> npt.NDArray[np.float64]:
    """Return Clopper-Pearson's one-sided upper bound of a rate, given `count` in `n`."""
    counts, totals = np.asarray(count, np.float64), np.asarray(n, np.float64)
    # For n in n the bound is 1, where the beta distribution is not defined.
    bound = betaincinv(counts + 1, np.maximum(totals - counts, np.finfo(float).tiny), level)
    return np.where(counts >= totals, 1.0, bound)


def clopper_pearson(count: float, n: float, level: float = LEVEL) -> tuple[float, float]:
    """Return the exact two-sided interval of a binomial rate; counts may be fractional."""
    if not n > 0 or not 0 <= count <= n:
        raise BadInput(
            f"A rate of {count} in {n} cannot be: the count must lie between 0 and a positive n."
        )
    one_sided = (1 + level) / 2
    return 1 - float(upper_rate(n - count, n, one_sided)), float(upper_rate(count, n, one_sided))


def binomial_error(rate: float, n: int) -> float:
    """Return the standard error of a rate, with two more of each outcome (Agresti and Coull).

    It is never 0: none in n may be some in the next n.
    """
    if n < 1 or not 0 <= rate <= 1:
        raise BadInput(
            f"A rate of {rate} over {n} samples has no error: "
            "the rate must lie in [0, 1] and n be positive."
        )
    adjusted = (rate * n + 2) / (n + 4)
    return math.sqrt(adjusted * (1 - adjusted) / (n + 4))


def mean_interval(
    values: Sequence[float] | npt.NDArray[Any], level: float = LEVEL
) -> SampleEstimate:
    """Return the mean of independent values, with Student's interval."""
    n = len(values)
    if n < 2:
        raise BadInput(f"An interval of a mean needs at least 2 values, got {n}.")
    mean, half = (
        float(np.mean(values)),
        float(student.ppf((1 + level) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n)),
    )
    return SampleEstimate(mean, mean - half, mean + half, n)


@dataclass(frozen=True)
class Band:
    """The prediction interval of a further retrained model: mean ± t(n-1)·s·sqrt(1 + 1/n).

    All models are measured on the same samples, so that their spread holds the sampling noise too.
    """

    mean: float
    spread: float
    """s·sqrt(1 + 1/n)."""
    n: int
    level: float = LEVEL

    @property
    def low(self) -> float:
        return self.mean - self.half_width(self.level)

    @property
    def high(self) -> float:
        return self.mean + self.half_width(self.level)

    def half_width(self, level: float) -> float:
        """Return half the width of the two-sided interval of this level."""
        return float(student.ppf((1 + level) / 2, self.n - 1)) * self.spread

    def p_value(self, value: float, alternative: Alternative = "two-sided") -> float:
        """Return how often a further retrained model lies as far out."""
        if not self.spread:
            return float(value == self.mean)
        t = (value - self.mean) / self.spread
        if alternative == "greater":
            return float(student.sf(t, self.n - 1))
        return float(2 * student.sf(abs(t), self.n - 1))


def prediction_interval(
    values: Sequence[float], least_spread: float = 0.0, shares_pairs: bool = False
) -> Band:
    """Return the prediction interval of a further retrained model.

    Args:
        values: One value for each retrained model.
        least_spread: The standard deviation is taken as at least this.
        shares_pairs: Whether each value is a mean distance to the other models. Two such values
            share a pair, which shrinks their spread by (n - 2) / (n - 1).
    """
    n = len(values)
    if n < 2 + shares_pairs:
        raise BadInput(
            f"A prediction interval needs at least {2 + shares_pairs} retrained models, got {n}."
        )
    if not np.isfinite(values).all():
        raise BadInput("The values of the retrained models are not all finite numbers.")
    deviation = float(np.std(values, ddof=1))
    if shares_pairs:
        deviation *= (n - 1) / (n - 2)
    spread = max(deviation, least_spread) * math.sqrt(1 + 1 / n)
    return Band(float(np.mean(values)), spread, n)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Correct p-values for several tests by Holm's step-down method, in the order given."""
    corrected: dict[str, float] = {}
    highest = 0.0
    for place, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, (len(p_values) - place) * p))
        corrected[name] = highest
    return {name: corrected[name] for name in p_values}
