"""RMIA (Zarifzadeh et al. 2024): compare a sample's likelihood ratio with unseen samples' ratios.

The ratio is the sample's probability under the attacked model over that under an average model.
"""

import math
from functools import cached_property

import numpy as np
from scipy.special import log_expit, logsumexp

from duck.audits.attacks.base import ATTACKS, PoolAttack
from duck.audits.outputs import ModelOutputs, Setting
from duck.audits.scores import Array, Flags, Margins, Scored, margins
from duck.audits.statistics import roc
from duck.errors import BadInput
from duck.types import Ids

OFFSETS = tuple(round(0.1 * step, 1) for step in range(11))
"""Values of `a` that tuning tries."""


@ATTACKS.register("rmia")
class RmiaAttack(PoolAttack):
    """Score a sample by the share of holdout samples whose likelihood ratio it exceeds."""

    title = "RMIA"
    description = "gain over the average model, against that of unseen samples"
    direction = "forgotten samples gain more over the average model than unseen ones do"
    paper = "Zarifzadeh 2024, arXiv:2312.03262"
    order = 30

    @cached_property
    def holdout(self) -> Ids:
        """The population."""
        ids: Ids = self.pool.ids[self.pool.roles == "holdout"]
        return ids

    @cached_property
    def offset(self) -> float:
        """The best `a` for the models of the pool before unlearning."""
        known = self.pool.ids[np.isin(self.pool.roles, ["candidate", "holdout"])]
        return tune_offset(self.pool.margins("before").at(known), self.holdout)

    def __call__(self, outputs: ModelOutputs) -> Scored:
        """Score the samples of the pool that are not in the population."""
        ids = self.pool.test_ids(outputs.unseen.ids)
        in_population = choose_population(ids, self.holdout)
        target = self.target(outputs)
        target = target.take(~np.isin(target.ids, ids[in_population]))
        scores = margins(outputs.unseen.logits, outputs.unseen.labels)
        unseen = Scored(ids, scores, np.zeros(len(ids), np.bool_))
        population = unseen.take(in_population)
        return rmia(target, self.oracles, population, self.offset)

    @classmethod
    def count_non_members(cls, setting: Setting) -> int:
        """Count the matched unseen samples outside the population."""
        count = int(np.isin(setting.matched, setting.test).sum())
        return count // 2 if np.isin(setting.test, setting.holdout).all() else count

    @classmethod
    def is_possible(cls, setting: Setting) -> bool:
        """Return whether non-members remain besides the holdout."""
        return cls.count_non_members(setting) >= 2


def choose_population(ids: Ids, holdout: Ids) -> Flags:
    """Return which unseen samples are the population: those of the holdout.

    Where the audit looks at none of these, as the final audit of an assured run, or at no others,
    every second sample is.
    """
    chosen: Flags = np.isin(ids, holdout)
    if chosen.any() and not chosen.all():
        return chosen
    return np.isin(ids, np.sort(ids)[::2])


def rmia(target: Scored, references: Margins, population: Scored, a: float) -> Scored:
    """Return the share of population samples z with p_x(θ) / p(x) >= p_z(θ) / p(z), γ being 1.

    `population` holds the target's margins on samples that no model was trained on (the holdout).
    All is computed in logarithms: p_y = σ(φ) of a confident model rounds to 1, and of a wrong one
    to 0.
    """
    if not len(population.ids):
        raise BadInput("RMIA compares with unseen samples, and the holdout is empty.")
    ratios = _log_ratios(target, references, a)
    unseen = _log_ratios(population, references, a)
    passed = np.searchsorted(np.sort(unseen), ratios, side="right")
    return Scored(target.ids, passed / len(unseen), target.members)


def tune_offset(references: Margins, population: Ids) -> float:
    """Return the `a` with the highest AUC against the first reference, given all the others.

    The members of that reference are known.
    """
    population_scores = references.at(population).row(0)
    target = references.at(references.ids[~np.isin(references.ids, population)]).row(0)
    others = references.models(np.arange(1, len(references)))
    aucs = {a: roc(rmia(target, others, population_scores, a)).auc.value for a in OFFSETS}
    return max(aucs, key=aucs.__getitem__)


def _log_ratios(target: Scored, references: Margins, a: float) -> Array:
    """Return log p_x(θ) - log p(x), with p(x) = ½((1 + a)·mean p_out + 1 - a).

    p(x) estimates the mean over models with and without x.
    """
    references = references.at(target.ids)
    mean = _log_mean(references.values.astype(np.float64), ~references.members)
    with np.errstate(divide="ignore"):  # a = 1: the second term is 0
        prior = np.logaddexp(math.log((1 + a) / 2) + mean, np.log((1 - a) / 2))
    ratios: Array = log_expit(target.scores.astype(np.float64)) - prior
    return ratios


def _log_mean(values: Array, chosen: Flags) -> Array:
    """Return the logarithm of the mean probability over the chosen models, for each sample."""
    count = chosen.sum(0)
    if not count.size or count.min() < 1:
        raise BadInput(
            "RMIA needs at least 1 reference model that was not trained on the sample; "
            f"one sample has none in {len(values)}."
        )
    logs = np.where(chosen, log_expit(values), -np.inf)
    means: Array = logsumexp(logs, axis=0) - np.log(count)
    return means
