"""Offline LiRA (Carlini et al. 2022, the attack of the paper's table): how unusual is a margin among models that never saw the sample."""

import math

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import norm

from duck.audits.scores import Flags, Floats, Margins, Scored
from duck.errors import BadInput
from duck.runtime import seeded

LEAST = 4
"""Models that a Gaussian is fitted to: with fewer, a z-score has no finite variance."""
TINY = 1e-6


def offline_lira(target: Scored, shadows: Margins, seed: int = 0) -> Scored:
    """z = (φ - μ_out) / σ_out of the target's margins, over the shadow models that were not trained on the sample.

    Rank by z: its probability Φ(z) saturates at 1 and ties. A sample that no shadow saw takes the shadows that left out another
    sample, drawn at random: with all of them its μ and σ would be less noisy than a member's, and the noise would tell the two apart.
    """
    shadows = shadows.at(target.ids)
    out = _equal_shares(~shadows.members, seed)
    fewest = int(out.sum(0).min())
    if fewest < LEAST:
        need = math.ceil(LEAST * len(shadows) / max(fewest, 1))
        raise BadInput(
            f"A sample was left out by only {fewest} of {len(shadows)} shadow models, and a Gaussian needs {LEAST}: "
            f"train at least {need} shadow models on random halves."
        )
    mean, deviation = out_moments(shadows.values, out)
    return Scored(
        target.ids,
        (target.scores.astype(np.float64) - mean) / np.maximum(deviation, TINY),
        target.members,
    )


def probability(z: Floats) -> npt.NDArray[np.float64]:
    """Φ(z): how often a model that never saw the sample has a lower margin. To print, not to rank by."""
    shares: npt.NDArray[np.float64] = norm.cdf(z)
    return shares


def out_moments(
    values: Floats, chosen: Flags
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and standard deviation of the chosen entries of each column."""
    count = chosen.sum(0)
    mean = np.where(chosen, values, 0).sum(0, dtype=np.float64) / count
    centred = np.where(chosen, values - mean, 0)
    return mean, np.sqrt(np.square(centred, out=centred).sum(0) / np.maximum(count - 1, 1))


def _equal_shares(out: Flags, seed: int) -> Flags:
    unseen = out.all(0)
    seen = np.flatnonzero(~unseen)
    if not len(seen):
        return out
    lent = torch.randint(len(seen), (int(unseen.sum()),), generator=seeded(seed, "lira")).numpy()
    shares = out.copy()
    shares[:, unseen] = out[:, seen[lent]]
    return shares
