"""The loss attack (Yeom et al. 2018): members have a lower loss."""

import numpy as np

from duck.audits.attacks.base import ATTACKS, ThresholdAttack
from duck.audits.outputs import Array
from duck.audits.scores import Outputs


@ATTACKS.register("loss")
class LossAttack(ThresholdAttack):
    """Score a sample by its negative cross-entropy."""

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
    logits = outputs.logits.astype(np.float64)
    highest = logits.max(1)
    total = highest + np.log(np.exp(logits - highest[:, None]).sum(1))
    result: Array = total - logits[np.arange(len(logits)), outputs.labels]
    return result
