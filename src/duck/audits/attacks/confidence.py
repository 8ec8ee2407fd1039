"""The confidence attack: the model is more confident on members. Only grids run it."""

from duck.audits.attacks.base import ATTACKS, ThresholdAttack
from duck.audits.scores import Array, Outputs, margins


@ATTACKS.register("confidence")
class ConfidenceAttack(ThresholdAttack):
    """Score a sample by the log-odds of its most probable class, whether it is right or not."""

    title = "confidence attack"
    description = "log-odds of the most probable class of forgotten against unseen samples"
    direction = "the model is more confident on forgotten samples than on unseen ones"
    tier = None

    @staticmethod
    def score(outputs: Outputs) -> Array:
        """Return the margin of the most probable class."""
        return margins(outputs.logits, outputs.logits.argmax(-1))
