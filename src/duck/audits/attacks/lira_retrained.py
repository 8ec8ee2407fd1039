"""LiRA with the retrained models of an audit as shadow models."""

from collections.abc import Sequence

import numpy as np

from duck.audits.attacks.base import ATTACKS, RetrainedAttack
from duck.audits.attacks.gaussians import fit
from duck.audits.outputs import ModelOutputs, temperature_of
from duck.audits.scores import Array, Outputs, Scored, margins


@ATTACKS.register("lira-retrained")
class RetrainedLiraAttack(RetrainedAttack):
    """Score a sample by its z-score among retrained models, which never saw it."""

    title = "LiRA, retrained models"
    description = "how unusual a margin is among retrained models"
    direction = (
        "forgotten samples have higher margins, compared with those of retrained models, than "
        "unseen ones"
    )
    paper = "Carlini 2022, arXiv:2112.03570"
    decisive = True
    order = 70

    def against(self, outputs: ModelOutputs, retrained: Sequence[ModelOutputs]) -> Scored:
        """Score the samples by their calibrated margins."""
        target, *others = (self._margins(model) for model in (outputs, *retrained))
        values = np.stack([other.scores for other in others])
        # No model was trained on any of these samples, so that all have the same shadow models.
        z = fit(values, np.ones(values.shape, bool)).z(target.scores)
        return Scored(target.ids, z, target.members)

    def _margins(self, outputs: ModelOutputs) -> Scored:
        """Return margins at the temperature of the model: recipes differ in their scale."""
        scale = 1 / temperature_of(outputs, self.setting)

        def calibrated_margins(side: Outputs) -> Array:
            return margins(scale * side.logits, side.labels)

        return self.compare(outputs, calibrated_margins, np.char.add("unseen:", outputs.unseen.ids))
