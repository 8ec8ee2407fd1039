"""A Gaussian for the margin of each sample, fitted to models with or without it."""

import math
from typing import NamedTuple

import numpy as np
import torch

from duck.audits.scores import Array, Flags, Floats
from duck.errors import BadInput
from duck.runtime import seeded

MIN_MODELS = 4
"""Models without a sample that a Gaussian is fitted to: with fewer, a z-score has no variance."""
MIN_DEVIATION = 1e-6
PRIOR = 4.0
"""ν₀: the weight, in models, of the variance that all samples share, besides each sample's own."""


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


def check_count(chosen: Flags, how: str) -> None:
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


def equal_shares(out: Flags, seed: int) -> Flags:
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
