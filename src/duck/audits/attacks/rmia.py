"""RMIA (Zarifzadeh et al. 2024): compare a sample's likelihood ratio with unseen samples' ratios.

The ratio is the sample's probability under the attacked model over that under an average model.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy.special import log_expit, logsumexp

from duck.audits.attacks.base import ATTACKS, PoolAttack
from duck.audits.margins import margins
from duck.audits.outputs import ModelOutputs, Setting
from duck.audits.roc import roc
from duck.audits.scores import Flags, Margins, Scored
from duck.errors import BadInput
from duck.pools.reader import Pool
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

    def __init__(self, setting: Setting, pool: Pool | None = None) -> None:
        super().__init__(setting, pool)
        self.oracles = self.pool.margins("oracle")
        self.holdout = self.pool.ids[self.pool.roles == "holdout"]
        known = self.pool.ids[np.isin(self.pool.roles, ["candidate", "holdout"])]
        self.offset = tune_offset(self.pool.margins("before").at(known), self.holdout)

    def __call__(self, outputs: ModelOutputs) -> Scored:
        """Score the samples of the pool that are not in the holdout, which is the population."""
        target = self.target(outputs)
        others = ~np.isin(target.ids, self.holdout)
        target = Scored(target.ids[others], target.scores[others], target.members[others])
        return rmia(target, self.oracles, self.population(outputs), self.offset)

    def population(self, outputs: ModelOutputs) -> Scored:
        """Return the attacked model's margins on the holdout."""
        ids = self.unseen_ids(outputs.unseen)
        rows = np.isin(ids, self.holdout)
        scores = margins(outputs.unseen.logits, outputs.unseen.labels)[rows]
        return Scored(ids[rows], scores, np.zeros(int(rows.sum()), np.bool_))

    @classmethod
    def count_non_members(cls, setting: Setting) -> int:
        """Count the matched unseen samples outside the holdout."""
        return int(np.isin(setting.matched, setting.test).sum())

    @classmethod
    def is_possible(cls, setting: Setting) -> bool:
        """Return whether non-members remain besides the holdout."""
        return cls.count_non_members(setting) >= 2


def rmia(
    target: Scored, references: Margins, population: Scored, a: float, gamma: float = 1.0
) -> Scored:
    """Return the share of population samples z with [p_x(θ) / p(x)] / [p_z(θ) / p(z)] >= γ.

    `population` holds the target's margins on samples that no model was trained on (the holdout).
    All is computed in logarithms: p_y = σ(φ) of a confident model rounds to 1, and of a wrong one
    to 0.
    """
    if not len(population.ids):
        raise BadInput("RMIA compares with unseen samples, and the holdout is empty.")
    if not 0 <= a <= 1 or not gamma > 0:
        raise BadInput(f"RMIA takes a in [0, 1] and gamma > 0, got a = {a} and gamma = {gamma}.")
    ratios = _log_ratios(target, references, a)
    unseen = _log_ratios(population, references, a)
    # x passes z where log ratio x - log γ >= log ratio z.
    passed = np.searchsorted(np.sort(unseen), ratios - math.log(gamma), side="right")
    return Scored(target.ids, passed / len(unseen), target.members)


def tune_offset(references: Margins, population: Ids, model: int = 0, gamma: float = 1.0) -> float:
    """Return the `a` with the highest AUC against one of the references, given all the others.

    The members of that reference are known.
    """
    population_scores = references.at(population).row(model)
    target = references.at(references.ids[~np.isin(references.ids, population)]).row(model)
    others = references.models(np.delete(np.arange(len(references)), model))

    def auc(a: float) -> float:
        return roc(rmia(target, others, population_scores, a, gamma)).auc.value

    return max(OFFSETS, key=auc)


def _log_ratios(target: Scored, references: Margins, a: float) -> npt.NDArray[np.float64]:
    """Return log p_x(θ) - log p(x), with p(x) = ½((1 + a)·mean p_out + 1 - a).

    p(x) estimates the mean over models with and without x.
    """
    references = references.at(target.ids)
    mean = _log_mean(references.values.astype(np.float64), ~references.members)
    with np.errstate(divide="ignore"):  # a = 1: the second term is 0
        prior = np.logaddexp(math.log((1 + a) / 2) + mean, np.log((1 - a) / 2))
    ratios: npt.NDArray[np.float64] = log_expit(target.scores.astype(np.float64)) - prior
    return ratios


def _log_mean(values: npt.NDArray[np.float64], chosen: Flags) -> npt.NDArray[np.float64]:
    """Return the logarithm of the mean probability over the chosen models, for each sample."""
    count = chosen.sum(0)
    if not count.size or count.min() < 1:
        raise BadInput(
            "RMIA needs at least 1 reference model that was not trained on the sample; "
            f"one sample has none in {len(values)}."
        )
    logs = np.where(chosen, log_expit(values), -np.inf)
    means: npt.NDArray[np.float64] = logsumexp(logs, axis=0) - np.log(count)
    return means
