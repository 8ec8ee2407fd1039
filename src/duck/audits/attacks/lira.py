"""LiRA (Carlini et al. 2022): compare a margin with those of models without and with the sample.

The attack of the paper's table is offline LiRA, which needs models without the sample alone.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from duck.audits.attacks.base import ATTACKS, LOW_AUC, PoolAttack, RetrainedAttack
from duck.audits.outputs import ModelOutputs, temperature_of
from duck.audits.scores import Array, Flags, Floats, Margins, Outputs, Scored, margins
from duck.errors import BadInput
from duck.runtime import seeded

MIN_MODELS = 4
"""Models without a sample that a Gaussian is fitted to: with fewer, a z-score has no variance."""
MIN_DEVIATION = 1e-6
PRIOR = 4.0
"""ν₀: the weight, in models, of the variance that all samples share, besides each sample's own."""


@ATTACKS.register("lira")
class LiraAttack(PoolAttack):
    """Score a sample by its z-score among the oracles of the pool, which never saw it."""

    title = "LiRA"
    description = "how unusual a margin is among models that never saw the sample"
    direction = (
        "forgotten samples have margins that models without them do not show; against unseen ones"
    )
    paper = "Carlini 2022, arXiv:2112.03570"
    columns: ClassVar[tuple[str, ...]] = ("tpr_1", "tpr_0.1", "auc", "f1")
    remark = LOW_AUC
    settings: ClassVar[tuple[str, ...]] = ("shadows", "pool")
    decisive = True
    order = 20
    prior: ClassVar[float] = PRIOR

    def __call__(self, outputs: ModelOutputs) -> Scored:
        """Score the samples that the pool has margins of."""
        return offline_lira(self.target(outputs), self.oracles, self.setting.seed, self.prior)


@ATTACKS.register("lira-online")
class OnlineLiraAttack(PoolAttack):
    """Compare models of the pool with and without a sample, before any unlearning."""

    title = "online LiRA"
    description = "whether a margin is more like that of models with the sample than without it"
    direction = (
        "forgotten samples have margins of models that were trained on them; against unseen ones"
    )
    paper = "Carlini 2022, arXiv:2112.03570"
    order = 22

    @cached_property
    def models(self) -> Margins:
        """The margins of models with and without each candidate."""
        before, oracles = self.pool.margins("before"), self.oracles
        return Margins(
            before.ids,
            np.concatenate([before.values, oracles.values]),
            np.concatenate([before.members, oracles.members]),
        )

    def __call__(self, outputs: ModelOutputs) -> Scored:
        """Score the samples that the pool has margins of."""
        return online_lira(self.target(outputs), self.models, self.setting.seed)


@ATTACKS.register("lira-fixed")
class FixedVarianceLiraAttack(LiraAttack):
    """Score a sample by its distance to the mean of the oracles, which never saw it."""

    title = "LiRA, fixed variance"
    description = "how far a margin is above the mean of models that never saw the sample"
    direction = (
        "forgotten samples have higher margins than the mean of models without them; "
        "against unseen ones"
    )
    columns = ()
    settings = ()
    decisive = False
    order = 24
    prior = math.inf


@ATTACKS.register("lira-retrained")
class RetrainedLiraAttack(RetrainedAttack):
    """Score a sample by its z-score among retrained models, which never saw it."""

    title = "LiRA, retrained models"
    description = "how unusual a margin is among retrained models"
    direction = (
        "forgotten samples have higher margins, compared with those of retrained models, than "
        "unseen ones"
    )
    paper = "Carlini 2022, arXiv:2112.03570"
    decisive = True
    order = 70

    def against(self, outputs: ModelOutputs, retrained: Sequence[ModelOutputs]) -> Scored:
        """Score the samples by their calibrated margins."""
        target, *others = (self._margins(model) for model in (outputs, *retrained))
        values = np.stack([other.scores for other in others])
        # No model was trained on any of these samples, so that all have the same shadow models.
        z = fit(values, np.ones(values.shape, bool)).z(target.scores)
        return Scored(target.ids, z, target.members)

    def _margins(self, outputs: ModelOutputs) -> Scored:
        """Return margins at the temperature of the model: recipes differ in their scale."""
        scale = 1 / temperature_of(outputs, self.setting)

        def calibrated_margins(side: Outputs) -> Array:
            return margins(scale * side.logits, side.labels)

        return self.compare(outputs, calibrated_margins, np.char.add("unseen:", outputs.unseen.ids))


class Fit(NamedTuple):
    """A Gaussian for each sample."""

    mean: Array
    variance: Array

    def z(self, values: Floats) -> Array:
        """Return how many standard deviations the values lie above the mean."""
        scores: Array = (values - self.mean) / np.sqrt(self.variance)
        return scores

    def log_density(self, values: Floats) -> Array:
        """Return the logarithm of the density, up to a constant."""
        return -0.5 * (np.log(self.variance) + np.square(self.z(values)))


def fit(values: Floats, chosen: Flags, prior: float = PRIOR) -> Fit:
    """Fit a Gaussian to the chosen entries of each column.

    σ² = (ν₀ s₀² + (n-1) s²) / (ν₀ + n - 1), with s₀² pooled over the columns: few models give a
    sample's own variance s² a large error. An infinite ν₀ gives all columns the variance s₀².
    """
    mean, deviation = column_moments(values, chosen)
    freedom = chosen.sum(0) - 1
    pooled = float((freedom * deviation**2).sum() / freedom.sum())
    own_weight = freedom / (prior + freedom)
    variance = own_weight * deviation**2 + (1 - own_weight) * pooled
    return Fit(mean, np.maximum(variance, MIN_DEVIATION**2))


def offline_lira(target: Scored, shadows: Margins, seed: int = 0, prior: float = PRIOR) -> Scored:
    """Return z = (φ - μ_out) / σ_out of the target's margins, over the shadows without the sample.

    Rank by z: its probability Φ(z) saturates at 1 and ties. A sample that no shadow model was
    trained on is compared with the shadow models that left out another sample, drawn at random.
    With all of them its μ and σ would be less noisy than a member's, which alone would separate
    the two.
    """
    shadows = shadows.at(target.ids)
    out = _equal_shares(~shadows.members, seed)
    _check_count(out, "left out by")
    z = fit(shadows.values, out, prior).z(target.scores)
    return Scored(target.ids, z, target.members)


def online_lira(target: Scored, models: Margins, seed: int = 0) -> Scored:
    """Return log N(φ; μ_in, σ_in) - log N(φ; μ_out, σ_out) over models with and without the sample.

    Of a sample that no model was trained on, μ_in and σ_in are not known. It gets the σ_in and the
    μ_in - μ_out of the sample whose μ_out is nearest to its own. The scores of a model without any
    of the samples are then alike on both sides.
    """
    models = models.at(target.ids)
    out = _equal_shares(~models.members, seed)
    trained_on = np.flatnonzero(models.members.any(0))
    if not len(trained_on):
        raise BadInput("Online LiRA needs models that were trained on the samples; none was.")
    inside = models.members[:, trained_on]
    _check_count(out, "left out by")
    _check_count(inside, "trained on by")
    without = fit(models.values, out)
    with_sample = fit(models.values[:, trained_on], inside)
    shift = with_sample.mean - without.mean[trained_on]
    order = np.argsort(without.mean[trained_on], kind="stable")
    known = without.mean[trained_on][order]
    source = order[np.searchsorted((known[1:] + known[:-1]) / 2, without.mean)]
    source[trained_on] = np.arange(len(trained_on))
    present = Fit(without.mean + shift[source], with_sample.variance[source])
    values = target.scores.astype(np.float64)
    ratios = present.log_density(values) - without.log_density(values)
    return Scored(target.ids, ratios, target.members)


def _check_count(chosen: Flags, how: str) -> None:
    """Raise an error where a sample has too few models for a Gaussian."""
    fewest, count = int(chosen.sum(0).min()), len(chosen)
    if fewest < MIN_MODELS:
        needed = math.ceil(MIN_MODELS * count / max(fewest, 1))
        raise BadInput(
            f"A sample was {how} only {fewest} of {count} shadow models, and a "
            f"Gaussian needs {MIN_MODELS}: train at least {needed} shadow models on random halves."
        )


def column_moments(values: Floats, chosen: Flags) -> tuple[Array, Array]:
    """Return mean and standard deviation of the chosen entries of each column."""
    count = chosen.sum(0)
    mean = np.where(chosen, values, 0).sum(0, dtype=np.float64) / count
    centred = np.where(chosen, values - mean, 0)
    return mean, np.sqrt(np.square(centred, out=centred).sum(0) / np.maximum(count - 1, 1))


def _equal_shares(out: Flags, seed: int) -> Flags:
    """Give a sample that no model was trained on the models that left out another sample."""
    unseen = out.all(0)
    trained_on = np.flatnonzero(~unseen)
    if not len(trained_on):
        return out
    generator = seeded(seed, "lira")
    substitutes = torch.randint(len(trained_on), (int(unseen.sum()),), generator=generator).numpy()
    shares = out.copy()
    shares[:, unseen] = out[:, trained_on[substitutes]]
    return shares
