"""Online LiRA (Carlini et al. 2022): compare a margin with those of models with and without it."""

from functools import cached_property

import numpy as np

from duck.audits.attacks.base import ATTACKS, PoolAttack
from duck.audits.attacks.gaussians import Fit, check_count, equal_shares, fit
from duck.audits.outputs import ModelOutputs
from duck.audits.scores import Margins, Scored
from duck.errors import BadInput


@ATTACKS.register("lira-online")
class OnlineLiraAttack(PoolAttack):
    """Compare models of the pool with and without a sample, before any unlearning."""

    title = "online LiRA"
    description = "whether a margin is more like that of models with the sample than without it"
    direction = (
        "forgotten samples have margins of models that were trained on them; against unseen ones"
    )
    paper = "Carlini 2022, arXiv:2112.03570"
    order = 22

    @cached_property
    def models(self) -> Margins:
        """The margins of models with and without each candidate."""
        before, oracles = self.pool.margins("before"), self.oracles
        return Margins(
            before.ids,
            np.concatenate([before.values, oracles.values]),
            np.concatenate([before.members, oracles.members]),
        )

    def __call__(self, outputs: ModelOutputs) -> Scored:
        """Score the samples that the pool has margins of."""
        return online_lira(self.target(outputs), self.models, self.setting.seed)


def online_lira(target: Scored, models: Margins, seed: int = 0) -> Scored:
    """Return log N(φ; μ_in, σ_in) - log N(φ; μ_out, σ_out) over models with and without the sample.

    For a sample that no model was trained on, μ_in and σ_in are unknown. It gets the σ_in and the
    μ_in - μ_out of the sample whose μ_out is nearest to its own. The scores of a model without any
    of the samples are then alike on both sides.
    """
    models = models.at(target.ids)
    out = equal_shares(~models.members, seed)
    trained_on = np.flatnonzero(models.members.any(0))
    if not len(trained_on):
        raise BadInput("Online LiRA needs models that were trained on the samples; none was.")
    inside = models.members[:, trained_on]
    check_count(out, "left out by")
    check_count(inside, "trained on by")
    without = fit(models.values, out)
    with_sample = fit(models.values[:, trained_on], inside)
    shift = with_sample.mean - without.mean[trained_on]
    order = np.argsort(without.mean[trained_on], kind="stable")
    known = without.mean[trained_on][order]
    source = order[np.searchsorted((known[1:] + known[:-1]) / 2, without.mean)]
    source[trained_on] = np.arange(len(trained_on))
    present = Fit(without.mean + shift[source], with_sample.variance[source])
    values = target.scores.astype(np.float64)
    ratios = present.log_density(values) - without.log_density(values)
    return Scored(target.ids, ratios, target.members)
