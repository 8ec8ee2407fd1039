"""The ε of (ε, δ)-unlearning that the margins of one sample refute."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch

from duck.audits.intervals import upper_rate
from duck.audits.scores import Floats, Margins
from duck.errors import BadInput
from duck.runtime import seeded
from duck.types import Ids

DELTA = 1e-5
LEAST = 4
"""Models a side: two choose the rule, two are counted."""
TIE = 1e-9
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Epsilons:
    """For each sample the 95 % lower bound of ε, and its limit with this number of models."""

    ids: Ids
    lower: Array
    limit: Array
    false_alarms: Array
    misses: Array
    """Error rates of the chosen rule on the counted models."""
    one_threshold: npt.NDArray[np.bool_]
    """Whether the rule is a threshold. Else it is an interval, or the outside of one."""
    counted: int
    """Models a side, for the sample that has the fewest."""


def epsilon(false_alarms: npt.ArrayLike, misses: npt.ArrayLike, delta: float = DELTA) -> Array:
    """Return max(ln((1 - δ - FPR) / FNR), ln((1 - δ - FNR) / FPR), 0) (Kairouz et al. 2015)."""
    fpr, fnr = np.asarray(false_alarms, np.float64), np.asarray(misses, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        both = [
            np.log(np.maximum(1 - delta - one, 0)) - np.log(other)
            for one, other in ((fpr, fnr), (fnr, fpr))
        ]
    found: Array = np.maximum(np.fmax(*both), 0)
    return found


def limit(ours: int, theirs: int, delta: float = DELTA) -> float:
    """Return the bound of a rule without any error.

    It is 1.58, 2.32, 3.04 or 3.74 with 16, 32, 64 or 128 models a side.
    """
    return float(epsilon(upper_rate(0, theirs), upper_rate(0, ours), delta))


def epsilon_per_sample(
    unlearned: Margins, oracles: Margins, seed: int = 0, delta: float = DELTA
) -> Epsilons:
    """Bound ε for each sample by the errors of a rule that calls a margin "unlearned".

    The rule is a threshold or an interval, or the outside of one. It is chosen on half of the
    models of each side and counted on the other half. Clopper-Pearson's one-sided 95 % bounds of
    both error rates give the bound of ε.
    """
    oracles = oracles.at(unlearned.ids)
    order = [
        torch.randperm(len(side), generator=seeded(seed, "epsilon", name)).numpy()
        for side, name in _sides_with_names(unlearned, oracles)
    ]
    ours, theirs = unlearned.models(order[0]), oracles.models(order[1])
    fewest = min(int(ours.members.sum(0).min()), int((~theirs.members).sum(0).min()))
    if fewest < LEAST:
        raise BadInput(
            f"ε needs at least {LEAST} models that unlearned a sample and {LEAST} that never saw "
            f"it; one has only {fewest}."
        )
    found = np.array(
        [_sample(*_sides(ours, theirs, column), delta) for column in range(len(ours.ids))]
    ).T
    lower, most, fpr, fnr, plain, _ = found
    return Epsilons(ours.ids, lower, most, fpr, fnr, plain > 0, int(found[-1].min()))


def _sides_with_names(
    unlearned: Margins, oracles: Margins
) -> tuple[tuple[Margins, str], tuple[Margins, str]]:
    return (unlearned, "unlearned"), (oracles, "oracles")


def _sides(ours: Margins, theirs: Margins, column: int) -> tuple[Floats, Floats]:
    return ours.values[ours.members[:, column], column], theirs.values[
        ~theirs.members[:, column], column
    ]


def _sample(ours: Floats, theirs: Floats, delta: float) -> tuple[float, ...]:
    halves = len(ours) // 2, len(theirs) // 2
    low, high, inside = choose(ours[: halves[0]], theirs[: halves[1]], delta)
    counted = ours[halves[0] :], theirs[halves[1] :]
    called = [int((((side > low) & (side < high)) == inside).sum()) for side in counted]
    sizes = len(counted[0]), len(counted[1])
    misses, alarms = sizes[0] - called[0], called[1]
    lower = float(epsilon(upper_rate(alarms, sizes[1]), upper_rate(misses, sizes[0]), delta))
    plain = float(np.isinf(low) or np.isinf(high))
    return lower, limit(*sizes, delta), alarms / sizes[1], misses / sizes[0], plain, min(sizes)


def choose(ours: Floats, theirs: Floats, delta: float) -> tuple[float, float, bool]:
    """Return the rule with the highest bound; of equal ones a threshold, which overfits less."""
    points = np.unique(np.concatenate([ours, theirs]).astype(np.float64))
    cuts = np.concatenate([[-np.inf], (points[1:] + points[:-1]) / 2, [np.inf]])
    below = [np.searchsorted(np.sort(side), cuts) for side in (ours, theirs)]
    within = [
        np.maximum(count[None, :] - count[:, None], 0) for count in below
    ]  # from each cut to each later one
    table = _table(len(ours), len(theirs), delta)
    bounds = np.stack(
        [table[len(ours) - within[0], within[1]], table[within[0], len(theirs) - within[1]]]
    )
    bounds[:, np.tri(len(cuts), dtype=bool)] = -1
    bounds[:, 0] += TIE
    bounds[:, :, -1] += TIE
    inverted, low, high = np.unravel_index(int(bounds.argmax()), bounds.shape)
    return float(cuts[low]), float(cuts[high]), not inverted


@cache
def _table(ours: int, theirs: int, delta: float) -> Array:
    """Return the bound of ε by the number of misses and of false positives."""
    misses, alarms = (
        upper_rate(np.arange(ours + 1), ours),
        upper_rate(np.arange(theirs + 1), theirs),
    )
    return epsilon(alarms[None, :], misses[:, None], delta)
