"""Offline LiRA (Carlini et al. 2022): compare a margin with those of models without the sample.

This is the attack of the paper's table.
"""

import math

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import norm

from duck.audits.attacks.base import ATTACKS, PoolAttack
from duck.audits.outputs import ModelOutputs, Setting
from duck.audits.scores import Flags, Floats, Margins, Scored
from duck.errors import BadInput
from duck.pools.reader import Pool
from duck.runtime import seeded

MIN_MODELS = 4
"""Models without a sample that a Gaussian is fitted to: with fewer, a z-score has no variance."""
MIN_DEVIATION = 1e-6


@ATTACKS.register("lira")
class LiraAttack(PoolAttack):
    """Score a sample by its z-score among the oracles of the pool, which never saw it."""

    title = "LiRA"
    description = "how unusual a margin is among models that never saw the sample"
    direction = (
        "forgotten samples have margins that models without them do not show; against unseen ones"
    )
    paper = "Carlini 2022, arXiv:2112.03570"
    columns = ("tpr_1", "tpr_0.1", "auc", "f1")
    settings = ("shadows", "pool")
    order = 20

    def __init__(self, setting: Setting, pool: Pool | None = None) -> None:
        super().__init__(setting, pool)
        self.oracles = self.pool.margins("oracle")

    def __call__(self, outputs: ModelOutputs) -> Scored:
        """Score the samples that the pool has margins of."""
        return offline_lira(self.target(outputs), self.oracles, self.setting.seed)


def offline_lira(target: Scored, shadows: Margins, seed: int = 0) -> Scored:
    """Return z = (φ - μ_out) / σ_out of the target's margins, over the shadows without the sample.

    Rank by z: its probability Φ(z) saturates at 1 and ties. A sample that no shadow model was
    trained on is compared with the shadow models that left out another sample, drawn at random.
    With all of them its μ and σ would be less noisy than a member's, which alone would separate
    the two.
    """
    shadows = shadows.at(target.ids)
    out = _equal_shares(~shadows.members, seed)
    fewest = int(out.sum(0).min())
    if fewest < MIN_MODELS:
        needed = math.ceil(MIN_MODELS * len(shadows) / max(fewest, 1))
        raise BadInput(
            f"A sample was left out by only {fewest} of {len(shadows)} shadow models, and a "
            f"Gaussian needs {MIN_MODELS}: train at least {needed} shadow models on random halves."
        )
    mean, deviation = column_moments(shadows.values, out)
    z = (target.scores.astype(np.float64) - mean) / np.maximum(deviation, MIN_DEVIATION)
    return Scored(target.ids, z, target.members)


def probability(z: Floats) -> npt.NDArray[np.float64]:
    """Return Φ(z), the share of models without the sample that have a lower margin.

    It is meant for printing. Rank by z.
    """
    shares: npt.NDArray[np.float64] = norm.cdf(z)
    return shares


def column_moments(
    values: Floats, chosen: Flags
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
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
