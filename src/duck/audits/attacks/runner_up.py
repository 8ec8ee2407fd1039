"""The runner-up attack: the second largest probability of members is lower."""

import numpy as np

from duck.audits.attacks.base import ATTACKS, ThresholdAttack
from duck.audits.scores import Array, Outputs


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
