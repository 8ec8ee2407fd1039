"""The loss attack: members have a lower cross-entropy."""

import numpy as np
from scipy.special import log_softmax

from duck.audits.attacks.base import ATTACKS, ThresholdAttack
from duck.audits.scores import Array, Outputs


@ATTACKS.register("loss")
class LossAttack(ThresholdAttack):
    """Score a sample by its negative cross-entropy: members have a lower loss."""

    title = "loss attack"
    description = "losses of forgotten against unseen samples, two-sided"
    direction = "forgotten samples have a lower loss than unseen ones"
    paper = "Yeom 2018, arXiv:1709.01604"
    decisive = True
    order = 40

    @staticmethod
    def score(outputs: Outputs) -> Array:
        """Return the negative loss of each sample."""
        return -losses(outputs)


def losses(outputs: Outputs) -> Array:
    """Return the cross-entropy of each sample in nats."""
    log_shares = log_softmax(outputs.logits.astype(np.float64), axis=1)
    result: Array = -log_shares[np.arange(len(log_shares)), outputs.labels]
    return result
