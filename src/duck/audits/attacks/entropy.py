"""The entropy attack: the model is more confident on members."""

from scipy.special import entr

from duck.audits.attacks.base import ATTACKS, ThresholdAttack
from duck.audits.scores import Array, Outputs


@ATTACKS.register("entropy")
class EntropyAttack(ThresholdAttack):
    """Score a sample by the negative entropy of the model's output on it."""

    title = "entropy attack"
    description = "entropies of outputs on forgotten against unseen samples, two-sided"
    direction = "outputs of forgotten samples have a lower entropy than those of unseen ones"
    paper = "Salem 2019, arXiv:1806.01246"
    decisive = True
    order = 50

    @staticmethod
    def score(outputs: Outputs) -> Array:
        """Return the negative entropy of each sample in nats."""
        result: Array = -entr(outputs.probabilities).sum(1)
        return result
