"""Statistics of audits: ROC curves, exact binomial bounds, prediction intervals, Holm's method."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv
from scipy.stats import beta, rankdata
from scipy.stats import t as student

from duck.audits.scores import Array, Flags, Floats, Scored
from duck.audits.verdict import RocCurve
from duck.errors import BadInput

LEVEL = 0.95
NORMAL_QUANTILE = NormalDist().inv_cdf((1 + LEVEL) / 2)
RATES = (0.01, 0.001)
"""False-positive rates at which the paper's table gives the true-positive rate."""
POINTS = 100
Alternative = Literal["two-sided", "greater"]
Compared = Literal["alone", "pairs", "group"]


class SampleEstimate(NamedTuple):
    """A value with its 95 % interval and the number of observations behind it."""

    value: float
    low: float
    high: float
    n: int


def upper_rate(count: npt.ArrayLike, n: npt.ArrayLike, level: float = LEVEL) -> Array:
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


def mean_interval(values: Array) -> SampleEstimate:
    """Return the mean of independent values, with Student's interval."""
    n = len(values)
    mean = float(np.mean(values))
    half = float(student.ppf((1 + LEVEL) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
    return SampleEstimate(mean, mean - half, mean + half, n)


@dataclass(frozen=True)
class Band:
    """The prediction interval of a further retrained model: mean ± t(n-1)·s·sqrt(1 + 1/n).

    All models are measured on the same samples, so that their spread holds the sampling noise too.
    """

    mean: float
    spread: float
    """The standard deviation of a further model: s·√(1 + 1/n), if each was measured alone."""
    n: int

    @property
    def low(self) -> float:
        return self.mean - self.half_width(LEVEL)

    @property
    def high(self) -> float:
        return self.mean + self.half_width(LEVEL)

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
    values: Sequence[float], least_spread: float = 0.0, compared: Compared = "alone"
) -> Band:
    """Return the prediction interval of a further retrained model.

    Args:
        values: One value for each retrained model: at least two, of pairs three.
        least_spread: The standard deviation is taken as at least this.
        compared: What each value was computed from. `alone`: one model. `pairs`: it is a mean
            distance to the other models. Two such values share a pair, which shrinks their spread
            by (n - 2) / (n - 1). `group`: it compares a model with the mean of the others. Their
            sum is then fixed, so that their spread is √(n / (n - 1)) times that of a further model.
    """
    n = len(values)
    if not np.isfinite(values).all():
        raise BadInput("The values of the retrained models are not all finite numbers.")
    deviation = float(np.std(values, ddof=1))
    factor = math.sqrt(1 + 1 / n)
    if compared == "pairs":
        factor *= (n - 1) / (n - 2)
    if compared == "group":
        factor = math.sqrt(1 - 1 / n)
    spread = max(deviation, least_spread) * factor
    return Band(float(np.mean(values)), spread, n)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Correct p-values for several tests by Holm's step-down method, in the order given."""
    corrected: dict[str, float] = {}
    highest = 0.0
    for place, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, (len(p_values) - place) * p))
        corrected[name] = highest
    return {name: corrected[name] for name in p_values}


@dataclass(frozen=True, eq=False)
class Roc:
    """A ROC curve: a point for each distinct score, from no sample called a member to all.

    A higher score means "was a member".
    """

    true_positives: npt.NDArray[np.int64]
    false_positives: npt.NDArray[np.int64]
    members: int
    others: int
    auc: SampleEstimate
    """Ties count half. The interval is DeLong's, with the rows of one id, or of one model, as
    clusters (Obuchowski)."""
    samples: int
    """Distinct ids among the members. The interval of a rate counts ids: rows that share one are
    not independent."""
    other_samples: int
    """Distinct ids among the non-members."""

    @property
    def fpr(self) -> Array:
        return self.false_positives / self.others

    @property
    def tpr(self) -> Array:
        return self.true_positives / self.members

    @property
    def f1(self) -> float:
        """The highest F1 of any threshold."""
        called = self.true_positives + self.false_positives
        return float((2 * self.true_positives / (called + self.members)).max())

    def tpr_at(self, fpr: float) -> SampleEstimate:
        """Return the true-positive rate at this false-positive rate, with a conservative interval.

        Of members drawn like non-members, a share of j / (n + 1) lies above the j-th highest of n
        non-members. The rate is interpolated between the two j around fpr x (n + 1): without
        information its mean is fpr, however few the non-members.

        The threshold itself is noisy: the j-th highest non-member has a false-positive rate of
        Beta(j, n - j + 1). Each end of the interval is Clopper-Pearson's bound at a threshold that
        lies on its side of the wanted rate. Half of the error goes to the threshold, half to the
        members.
        """
        least = least_others(fpr)
        if self.others < least:
            raise BadInput(
                f"A false-positive rate of {100 * fpr:g} % needs at least {least} non-members, "
                f"there are {self.others}."
            )
        place = fpr * (self.others + 1)
        below = math.floor(place + 1e-9)
        weight = max(0.0, place - below)
        rate = (1 - weight) * self._tpr_above(below) + weight * self._tpr_above(below + 1)
        strict, lenient = self._thresholds_around(fpr)
        # Without a rank that is surely above the rate, all members may lie above it.
        highest = 1.0 if lenient > self.others else self._tpr_from(lenient)
        low, high = (
            clopper_pearson(tpr * self.samples, self.samples, (1 + LEVEL) / 2)
            for tpr in (self._tpr_above(strict), highest)
        )
        return SampleEstimate(rate, low[0], high[1], self.samples)

    def _thresholds_around(self, fpr: float) -> tuple[int, int]:
        """Return the highest rank surely below this false-positive rate, the lowest surely above.

        The first is 0, and the second more than `others`, where there is no such rank.
        """
        n = self.other_samples
        ranks = np.arange(1, n + 1)
        below = beta.cdf(fpr, ranks, n - ranks + 1)
        sure = 1 - (1 - LEVEL) / 4
        strict = int((below >= sure).sum())
        lenient = int((1 - below < sure).sum()) + 1
        # Ranks count ids, which may have several rows each.
        rows = self.others / n
        return math.floor(strict * rows), math.ceil(lenient * rows)

    def _tpr_above(self, rank: int) -> float:
        """Return the share of members above the non-member of this rank; 1 is the highest."""
        if not rank:
            return 0.0
        return float(self.tpr[np.searchsorted(self.false_positives, rank - 1, side="right") - 1])

    def _tpr_from(self, rank: int) -> float:
        """Return the share of members at or above the non-member of this rank."""
        return float(self.tpr[np.searchsorted(self.false_positives, rank)])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, with a thinned curve.

        A rate that the number of non-members cannot resolve is None.
        """
        rates: dict[str, Any] = dict.fromkeys(map(str, RATES))
        rates |= {str(rate): self.tpr_at(rate)._asdict() for rate in resolved_rates(self.others)}
        return {
            "auc": self.auc._asdict(),
            "f1": self.f1,
            "tpr_at": rates,
            "members": self.members,
            "others": self.others,
            **asdict(self.curve()),
        }

    def curve(self) -> RocCurve:
        """Return some points: both ends, and the best threshold up to each of a list of rates."""
        wanted = np.concatenate([np.linspace(0, 1, POINTS), np.logspace(-4, 0, POINTS)])
        chosen = np.unique(np.searchsorted(self.fpr, wanted, side="right") - 1)
        return RocCurve(self.fpr[chosen].tolist(), self.tpr[chosen].tolist())


def roc(scored: Scored) -> Roc:
    """Return the ROC curve of scores."""
    members, others = int(scored.members.sum()), int((~scored.members).sum())
    if min(members, others) < 2:
        raise BadInput(
            "An attack needs at least 2 members and 2 non-members, "
            f"got {members} and {others}. "
            "Non-members are unseen samples: check that the holdout is not empty."
        )
    order = np.argsort(-scored.scores, kind="stable")
    sorted_scores, is_member = scored.scores[order], scored.members[order]
    # Equal scores share one point, that of the last.
    last = np.append(sorted_scores[1:] != sorted_scores[:-1], True)
    samples, other_samples = (
        len(np.unique(scored.ids[side])) for side in (scored.members, ~scored.members)
    )
    return Roc(
        np.append(0, np.cumsum(is_member)[last]),
        np.append(0, np.cumsum(~is_member)[last]),
        members,
        others,
        _delong(scored, members, others, min(samples, other_samples)),
        samples,
        other_samples,
    )


def least_others(fpr: float) -> int:
    """Return the number of non-members that a false-positive rate needs."""
    return math.ceil(1 / fpr - 1e-9)


def resolved_rates(others: int) -> list[float]:
    """Return the false-positive rates that this number of non-members can resolve."""
    return [rate for rate in RATES if others >= least_others(rate)]


def rank_auc(scores: Floats, members: Flags) -> float:
    """Return the AUC without its interval; ties count half."""
    count, others = int(members.sum()), int((~members).sum())
    ranks = rankdata(scores)[members].sum()
    return float((ranks - count * (count + 1) / 2) / (count * others))


def _delong(scored: Scored, members: int, others: int, fewest_samples: int) -> SampleEstimate:
    """Return the AUC with its interval."""
    ranks, within = rankdata(scored.scores), np.empty(len(scored.scores))
    for side in (scored.members, ~scored.members):
        within[side] = rankdata(scored.scores[side])
    # For a member the share of others below it, for another the share of members above it.
    placed = np.where(scored.members, (ranks - within) / others, 1 - (ranks - within) / members)
    auc = float(placed[scored.members].mean())
    variance = _variance(placed - auc, scored)
    half = NORMAL_QUANTILE * math.sqrt(max(variance, 0.0))
    low, high = max(0.0, auc - half), min(1.0, auc + half)
    if variance <= 0 or min(auc, 1 - auc) * fewest_samples < 1:
        # Separated but for less than one sample, or all equal: at least the binomial interval.
        least, most = clopper_pearson(auc * fewest_samples, fewest_samples)
        low, high = min(low, least), max(high, most)
    return SampleEstimate(auc, low, high, len(placed))


def _variance(deviations: Array, scored: Scored) -> float:
    """Return the variance of the AUC with two-way clusters: by ids + by models - by rows.

    Rows are correlated through their id and through their model.
    """
    by_id = _clustered(deviations, scored.members, scored.ids)
    if scored.models is None or len(np.unique(scored.models)) < 2:
        return by_id
    by_model = _clustered(deviations, scored.members, scored.models)
    by_row = _clustered(deviations, scored.members, np.arange(len(deviations)))
    return max(by_id + by_model - by_row, by_id, by_model)


def _clustered(deviations: Array, members: Flags, names: npt.NDArray[Any]) -> float:
    """Return the variance of the AUC where rows of other names are independent (Obuchowski 1997).

    With a name for each row it is DeLong's.
    """
    groups = np.unique(names, return_inverse=True)[1]
    count = int(groups.max()) + 1
    own, sums = 0.0, []
    for side in (members, ~members):
        total = np.bincount(groups[side], deviations[side], count) / side.sum()
        size = len(np.unique(groups[side]))
        own += size / max(size - 1, 1) * float(total @ total)
        sums.append(total)
    return own + 2 * count / max(count - 1, 1) * float(sums[0] @ sums[1])
