"""The confidence attack: the model is surer of members, whether it names the right class or not."""

from duck.audits.attacks.base import ATTACKS, ThresholdAttack
from duck.audits.margins import margins
from duck.audits.outputs import Array
from duck.audits.scores import Outputs


@ATTACKS.register("confidence")
class ConfidenceAttack(ThresholdAttack):
    """Score a sample by the log-odds of its most probable class."""

    title = "confidence attack"
    description = "log-odds of the most probable class of forgotten against unseen samples"
    direction = "the model is surer of forgotten samples than of unseen ones"
    tier = None

    @staticmethod
    def score(outputs: Outputs) -> Array:
        """Return the margin of the most probable class."""
        return margins(outputs.logits, outputs.logits.argmax(-1))
