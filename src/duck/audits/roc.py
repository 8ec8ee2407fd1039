"""How well scores separate members from others: ROC curve, AUC, TPR at a low FPR, F1."""

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, norm, rankdata

from duck.audits.intervals import LEVEL, SampleEstimate, clopper_pearson
from duck.audits.scores import Flags, Places, Scored
from duck.audits.verdict import RocCurve
from duck.errors import BadInput

RATES = (0.01, 0.001)
"""False-positive rates at which the paper's table gives the true-positive rate."""
POINTS = 100
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Roc:
    """A ROC curve: a point for each distinct score, from no sample called a member to all.

    A higher score means "was a member".
    """

    true_positives: Counts
    false_positives: Counts
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
    def fpr(self) -> npt.NDArray[np.float64]:
        return self.false_positives / self.others

    @property
    def tpr(self) -> npt.NDArray[np.float64]:
        return self.true_positives / self.members

    @cached_property
    def f1(self) -> float:
        """The highest F1 of any threshold."""
        return float(
            (
                2
                * self.true_positives
                / (self.true_positives + self.false_positives + self.members)
            ).max()
        )

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
        if not 0 < fpr <= 1:
            raise BadInput(f"The false-positive rate must lie in (0, 1], got {fpr}.")
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
        low = self._member_bounds(self._tpr_above(strict))[0]
        high = self._member_bounds(self._tpr_from(lenient))[1]
        return SampleEstimate(rate, low, high, self.samples)

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

    def _member_bounds(self, rate: float) -> tuple[float, float]:
        return clopper_pearson(rate * self.samples, self.samples, (1 + LEVEL) / 2)

    def _tpr_above(self, rank: int) -> float:
        """Return the share of members above the non-member of this rank.

        1 is the highest; no member lies above rank 0.
        """
        return (
            float(self.tpr[np.searchsorted(self.false_positives, rank - 1, side="right") - 1])
            if rank
            else 0.0
        )

    def _tpr_from(self, rank: int) -> float:
        """Return the share of members at or above the non-member of this rank."""
        if rank > self.others:
            return 1.0
        return float(self.tpr[np.searchsorted(self.false_positives, rank)])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, with a thinned curve.

        A rate that the number of non-members cannot resolve is None.
        """
        return {
            "auc": self.auc._asdict(),
            "f1": self.f1,
            "tpr_at": {
                str(rate): self.tpr_at(rate)._asdict()
                if self.others >= least_others(rate)
                else None
                for rate in RATES
            },
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
            "Non-members are unseen samples: is the holdout empty?"
        )
    order = np.argsort(-scored.scores, kind="stable")
    sorted_scores, is_member = scored.scores[order], scored.members[order]
    # Equal scores share one point, that of the last.
    last = np.append(sorted_scores[1:] != sorted_scores[:-1], True)
    true_positives, false_positives = (
        np.append(0, np.cumsum(flags)[last]) for flags in (is_member, ~is_member)
    )
    return Roc(
        true_positives,
        false_positives,
        members,
        others,
        _auc(scored, members, others),
        len(np.unique(scored.ids[scored.members])),
        len(np.unique(scored.ids[~scored.members])),
    )


def least_others(fpr: float) -> int:
    """Return the number of non-members that a false-positive rate needs."""
    return math.ceil(1 / fpr - 1e-9)


def _auc(scored: Scored, members: int, others: int) -> SampleEstimate:
    ranks, within = rankdata(scored.scores), np.empty(len(scored.scores))
    for side in (scored.members, ~scored.members):
        within[side] = rankdata(scored.scores[side])
    # For a member the share of others below it, for another the share of members above it.
    placed = np.where(scored.members, (ranks - within) / others, 1 - (ranks - within) / members)
    auc = float(placed[scored.members].mean())
    variance = _variance(placed - auc, scored)
    half = float(norm.ppf((1 + LEVEL) / 2)) * math.sqrt(max(variance, 0.0))
    low, high = max(0.0, auc - half), min(1.0, auc + half)
    few = min(len(np.unique(scored.ids[side])) for side in (scored.members, ~scored.members))
    if variance <= 0 or min(auc, 1 - auc) * few < 1:
        # Separated but for less than one sample, or all equal: at least the binomial interval.
        least, most = clopper_pearson(auc * few, few)
        low, high = min(low, least), max(high, most)
    return SampleEstimate(auc, low, high, len(placed))


def _variance(deviations: npt.NDArray[np.float64], scored: Scored) -> float:
    """Return the variance of the AUC with two-way clusters: by ids + by models - by rows.

    Rows are correlated through their id and through their model.
    """
    rows = np.arange(len(deviations))
    by_row, by_id = (
        _clustered(deviations, scored.members, groups) for groups in (rows, _numbered(scored.ids))
    )
    if scored.models is None or len(np.unique(scored.models)) < 2:
        return by_id
    by_model = _clustered(deviations, scored.members, _numbered(scored.models))
    return max(by_id + by_model - by_row, by_id, by_model)


def _numbered(names: npt.NDArray[Any]) -> Places:
    return np.unique(names, return_inverse=True)[1]


def _clustered(deviations: npt.NDArray[np.float64], members: Flags, groups: Places) -> float:
    """Return the variance of the AUC where groups are independent (Obuchowski 1997).

    With a group for each row it is DeLong's.
    """
    count = int(groups.max()) + 1
    sums = [
        np.bincount(groups[side], deviations[side], count) / side.sum()
        for side in (members, ~members)
    ]
    sizes = [len(np.unique(groups[side])) for side in (members, ~members)]
    own = sum(
        size / max(size - 1, 1) * float(total @ total)
        for total, size in zip(sums, sizes, strict=True)
    )
    return own + 2 * count / max(count - 1, 1) * float(sums[0] @ sums[1])
