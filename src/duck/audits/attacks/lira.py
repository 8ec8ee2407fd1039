"""Offline LiRA (Carlini et al. 2022): compare a margin with those of models without the sample.

It is the attack of the paper's table.
"""

from typing import ClassVar

from duck.audits.attacks.base import ATTACKS, LOW_AUC, PoolAttack
from duck.audits.attacks.gaussians import PRIOR, check_count, equal_shares, fit
from duck.audits.outputs import ModelOutputs
from duck.audits.scores import Margins, Scored


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


def offline_lira(target: Scored, shadows: Margins, seed: int = 0, prior: float = PRIOR) -> Scored:
    """Return z = (φ - μ_out) / σ_out of the target's margins, over the shadows without the sample.

    Rank by z: its probability Φ(z) saturates at 1 and ties. A sample that no shadow model was
    trained on is compared with the shadow models that left out another sample, drawn at random.
    With all of them its μ and σ would be less noisy than a member's, which alone would separate
    the two.
    """
    shadows = shadows.at(target.ids)
    out = equal_shares(~shadows.members, seed)
    check_count(out, "left out by")
    z = fit(shadows.values, out, prior).z(target.scores)
    return Scored(target.ids, z, target.members)
