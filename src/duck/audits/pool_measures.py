"""Measurements of a pool, sample by sample: KLoM, ε, memorisation, leakage of retained samples."""

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit

from duck.audits.attacks.gaussians import column_moments
from duck.audits.scores import Array, Flags, Floats, Margins, Scored
from duck.audits.statistics import SampleEstimate, mean_interval, roc, upper_rate
from duck.errors import BadInput
from duck.runtime import seeded
from duck.types import Ids

EXCESS = "U-LiRA excess"
AMONG_UNLEARNED = "U-LiRA among unlearned"
EPSILON = "ε"
EPSILON_EXCESS = "ε excess"
BINS = 20
CLIP = 100.0
FLOOR = 1e-5
SPLITS = 8
MIN_ORACLES = 8
"""For KLoM: four against four are the floor."""
DELTA = 1e-5
MIN_MODELS = 4
"""For ε, a side: two choose the rule, two are counted."""
TIE = 1e-9
Span = tuple[Array, Array]
"""The lowest and the highest margin of each sample."""


@dataclass(frozen=True, eq=False)
class Klom:
    """For each sample KL(unlearned ‖ oracle), and the floor: oracles against as many oracles."""

    values: Array
    floor: Array
    models: int
    """On each side."""


def klom(unlearned: Margins, oracles: Margins, span: Span | None = None) -> Klom:
    """Estimate KLoM (Georgiev et al. 2024) as a mean over random splits of the models.

    There are 20 bins over the range of all margins, φ is clipped to ±100, and shares are at least
    1e-5. Models before and after unlearning need the same `span` for the same floor.

    Half of the oracles are the reference. The other half, and as many unlearned models, are
    compared with it: for few models KL is far from 0 even if they are equal, so that only equal
    numbers can be compared. Where only some models were trained on a sample, only these count: the
    others had nothing to forget.
    """
    oracles, judged = oracles.at(unlearned.ids), _counting(unlearned)
    span = span_of(oracles, unlearned) if span is None else span
    size = min(int(judged.sum(0).min()), len(oracles) // 2)
    if 2 * size < MIN_ORACLES:
        raise BadInput(
            f"KLoM needs at least {MIN_ORACLES} oracles and {MIN_ORACLES // 2} unlearned models of "
            f"each sample, got {len(oracles)} and {size}."
        )
    generator = seeded(0, "klom")
    values, floor = np.zeros(len(oracles.ids)), np.zeros(len(oracles.ids))
    for _ in range(SPLITS):
        ours = _draw(unlearned.values, judged, size, generator)
        theirs = _draw(oracles.values, np.ones(oracles.values.shape, bool), 2 * size, generator)
        reference = histogram(theirs[size:], span)
        values += divergence(histogram(ours, span), reference) / SPLITS
        floor += divergence(histogram(theirs[:size], span), reference) / SPLITS
    return Klom(values, floor, size)


def span_of(oracles: Margins, *unlearned: Margins) -> Span:
    """Return the lowest and highest margin of each sample, over all models that count."""
    values = [_clipped(oracles.values)]
    values += [np.where(_counting(side), _clipped(side.values), np.nan) for side in unlearned]
    low: Array = np.min([np.nanmin(side, 0) for side in values], 0)
    high: Array = np.max([np.nanmax(side, 0) for side in values], 0)
    return low, high


def histogram(values: Floats, span: Span) -> Array:
    """Return the shares of the bins for each column, (columns, bins)."""
    low, high = span
    width = np.where(high > low, high - low, 1.0)
    bins = np.minimum((_clipped(values) - low) / width * BINS, BINS - 1).astype(np.int64)
    columns = bins.shape[1]
    places = (bins + BINS * np.arange(columns)).ravel()
    counts = np.bincount(places, minlength=BINS * columns).reshape(columns, BINS)
    raised = np.maximum(counts / len(bins), FLOOR)
    shares: Array = raised / raised.sum(1, keepdims=True)
    return shares


def divergence(ours: Array, theirs: Array) -> Array:
    """Return the KL divergence of each row of shares in nats."""
    total: Array = (ours * np.log(ours / theirs)).sum(1)
    return total


def _counting(models: Margins) -> Flags:
    """Choose the models that were trained on a sample; all of them where none or all were."""
    mixed = models.members.any(0) & ~models.members.all(0)
    return np.where(mixed, models.members, True)


def _clipped(values: Floats) -> Array:
    return np.clip(values.astype(np.float64), -CLIP, CLIP)


def _draw(values: Floats, allowed: Flags, size: int, generator: torch.Generator) -> Floats:
    """Draw entries of each column at random among the allowed ones."""
    keys = torch.rand(values.shape, generator=generator).numpy()
    chosen = np.argsort(np.where(allowed, keys, 2.0), axis=0)[:size]
    return np.take_along_axis(values, chosen, 0)


@dataclass(frozen=True, eq=False)
class Epsilons:
    """For each sample the 95 % lower bound of ε, and its limit with this number of models."""

    lower: Array
    limit: Array
    counted: int
    """Models a side, for the sample that has the fewest."""


class Rule(NamedTuple):
    """Calls a margin "unlearned" if it lies inside an interval, or outside of it."""

    low: float
    high: float
    inside: bool

    def count(self, values: Floats) -> int:
        """Count the margins that are called "unlearned"."""
        return int((((values > self.low) & (values < self.high)) == self.inside).sum())


def epsilon(false_alarms: npt.ArrayLike, misses: npt.ArrayLike, delta: float = DELTA) -> Array:
    """Return max(ln((1 - δ - FPR) / FNR), ln((1 - δ - FNR) / FPR), 0) (Kairouz et al. 2015)."""
    fpr, fnr = np.asarray(false_alarms, np.float64), np.asarray(misses, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_misses = np.log(np.maximum(1 - delta - fpr, 0)) - np.log(fnr)
        by_alarms = np.log(np.maximum(1 - delta - fnr, 0)) - np.log(fpr)
    found: Array = np.maximum(np.fmax(by_misses, by_alarms), 0)
    return found


def limit(ours: int, theirs: int) -> float:
    """Return the bound of a rule without any error.

    It is 1.58, 2.32, 3.04 or 3.74 with 16, 32, 64 or 128 models a side.
    """
    return float(epsilon(upper_rate(0, theirs), upper_rate(0, ours)))


def epsilon_per_sample(unlearned: Margins, oracles: Margins, seed: int = 0) -> Epsilons:
    """Bound the ε of (ε, δ)-unlearning for each sample by the errors of a rule.

    The rule calls a margin "unlearned" by a threshold or an interval, or the outside of one. It is
    chosen on half of the models of each side and counted on the other half. Clopper-Pearson's
    one-sided 95 % bounds of both error rates give the bound of ε.
    """
    orders = [
        torch.randperm(len(side), generator=seeded(seed, "epsilon", name)).numpy()
        for side, name in ((unlearned, "unlearned"), (oracles, "oracles"))
    ]
    ours, theirs = unlearned.models(orders[0]), oracles.at(unlearned.ids).models(orders[1])
    fewest = min(int(ours.members.sum(0).min()), int((~theirs.members).sum(0).min()))
    if fewest < MIN_MODELS:
        raise BadInput(
            f"ε needs at least {MIN_MODELS} models that unlearned a sample and {MIN_MODELS} that "
            f"never saw it; one has only {fewest}."
        )
    lower, limits, counted = [], [], []
    for column in range(len(ours.ids)):
        with_sample = ours.values[ours.members[:, column], column]
        without = theirs.values[~theirs.members[:, column], column]
        half, other_half = len(with_sample) // 2, len(without) // 2
        rule = choose(with_sample[:half], without[:other_half])
        sizes = len(with_sample) - half, len(without) - other_half
        misses = sizes[0] - rule.count(with_sample[half:])
        alarms = rule.count(without[other_half:])
        lower.append(epsilon(upper_rate(alarms, sizes[1]), upper_rate(misses, sizes[0])))
        limits.append(limit(*sizes))
        counted.append(min(sizes))
    return Epsilons(np.array(lower), np.array(limits), min(counted))


def choose(ours: Floats, theirs: Floats) -> Rule:
    """Return the rule with the highest bound; of equal ones a threshold, which overfits less."""
    points = np.unique(np.concatenate([ours, theirs]).astype(np.float64))
    cuts = np.concatenate([[-np.inf], (points[1:] + points[:-1]) / 2, [np.inf]])
    # How many of each side lie between a cut and a later one.
    our_counts, their_counts = (_counts_between(side, cuts) for side in (ours, theirs))
    table = _table(len(ours), len(theirs))
    bounds = np.stack(
        [
            table[len(ours) - our_counts, their_counts],
            table[our_counts, len(theirs) - their_counts],
        ]
    )
    bounds[:, np.tri(len(cuts), dtype=bool)] = -1
    bounds[:, 0] += TIE
    bounds[:, :, -1] += TIE
    inverted, low, high = np.unravel_index(int(bounds.argmax()), bounds.shape)
    return Rule(float(cuts[low]), float(cuts[high]), not inverted)


def _counts_between(values: Floats, cuts: Array) -> npt.NDArray[np.intp]:
    below = np.searchsorted(np.sort(values), cuts)
    counts: npt.NDArray[np.intp] = np.maximum(below[None, :] - below[:, None], 0)
    return counts


@cache
def _table(ours: int, theirs: int) -> Array:
    """Return the bound of ε by the number of misses and of false positives."""
    misses = upper_rate(np.arange(ours + 1), ours)
    alarms = upper_rate(np.arange(theirs + 1), theirs)
    return epsilon(alarms[None, :], misses[:, None])


def memorisation(models: Margins) -> Array:
    """Measure memorisation (Feldman and Zhang 2020) by p_y = σ(φ).

    It is the mean p_y of models that were trained on a sample minus that of the others. The models
    must differ by the sample alone: in models without its whole class the class would be measured.
    """
    values = expit(models.values.astype(np.float64))
    means = []
    for side, what in ((models.members, "trained on it"), (~models.members, "not trained on it")):
        if not side.size or side.sum(0).min() < 2:
            raise BadInput(
                f"Memorisation needs at least 2 models of each sample that were {what}, "
                f"one has {side.sum(0).min(initial=0)}."
            )
        means.append(column_moments(values, side)[0])
    difference: Array = means[0] - means[1]
    return difference


def leakage(models: Margins, retained: Ids, unseen: Ids) -> SampleEstimate:
    """Return the mean AUC of the margins of the models: retained against unseen samples.

    The interval adds the noise of the models and that of the choice of samples, which all models
    share.
    """
    ids = np.concatenate([retained, unseen])
    is_retained = np.repeat([True, False], [len(retained), len(unseen)])
    aucs = [roc(Scored(ids, row, is_retained)).auc for row in models.at(ids).values]
    over_models = mean_interval(np.array([auc.value for auc in aucs]))
    of_samples = float(np.mean([auc.high - auc.low for auc in aucs])) / 2
    half = math.hypot(over_models.high - over_models.value, of_samples)
    value = over_models.value
    return SampleEstimate(value, max(0.0, value - half), min(1.0, value + half), len(aucs))
