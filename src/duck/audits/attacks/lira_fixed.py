"""LiRA with one variance for all samples (Carlini et al. 2022), for few models."""

import math

from duck.audits.attacks.base import ATTACKS
from duck.audits.attacks.lira import LiraAttack


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
