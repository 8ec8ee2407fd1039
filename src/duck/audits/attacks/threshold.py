"""Attacks by one number of each sample: its loss, entropy, second largest probability, or odds."""

import numpy as np
from scipy.special import entr, log_softmax

from duck.audits.attacks.base import ATTACKS, ThresholdAttack
from duck.audits.scores import Array, Outputs, margins


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


@ATTACKS.register("entropy")
class EntropyAttack(ThresholdAttack):
    """Score a sample by the negative entropy of the model's output on it."""

    title = "entropy attack"
    description = "entropies of outputs on forgotten against unseen samples, two-sided"
    direction = "outputs of forgotten samples are surer than those of unseen ones"
    paper = "Salem 2019, arXiv:1806.01246"
    decisive = True
    order = 50

    @staticmethod
    def score(outputs: Outputs) -> Array:
        """Return the negative entropy of each sample in nats."""
        result: Array = -entr(outputs.probabilities).sum(1)
        return result


@ATTACKS.register("runner-up")
class RunnerUpAttack(ThresholdAttack):
    """Score a sample by the negative second largest probability.

    A sample that was sent to one class leaves little for the second one.
    """

    title = "runner-up attack"
    description = "second largest probabilities of forgotten against unseen samples, two-sided"
    direction = (
        "the second largest probability of forgotten samples is lower than that of unseen ones"
    )
    decisive = True
    order = 60

    @staticmethod
    def score(outputs: Outputs) -> Array:
        """Return the negative second largest probability, also where the largest is wrong."""
        result: Array = -np.partition(outputs.probabilities, -2, axis=1)[:, -2]
        return result


@ATTACKS.register("confidence")
class ConfidenceAttack(ThresholdAttack):
    """Score a sample by the log-odds of its most probable class, whether it is right or not."""

    title = "confidence attack"
    description = "log-odds of the most probable class of forgotten against unseen samples"
    direction = "the model is surer of forgotten samples than of unseen ones"
    tier = None

    @staticmethod
    def score(outputs: Outputs) -> Array:
        """Return the margin of the most probable class."""
        return margins(outputs.logits, outputs.logits.argmax(-1))


def losses(outputs: Outputs) -> Array:
    """Return the cross-entropy of each sample in nats."""
    log_shares = log_softmax(outputs.logits.astype(np.float64), axis=1)
    result: Array = -log_shares[np.arange(len(log_shares)), outputs.labels]
    return result
