"""RMIA (Zarifzadeh et al. 2024): is the sample more likely under this model, against the average model, than unseen samples are?"""

import math

import numpy as np
import numpy.typing as npt
from scipy.special import log_expit, logsumexp

from duck.audits.roc import roc
from duck.audits.scores import Flags, Margins, Scored
from duck.errors import BadInput
from duck.types import Ids

OFFSETS = tuple(round(0.1 * step, 1) for step in range(11))
"""Values of `a` that tuning tries."""


def rmia(
    target: Scored, references: Margins, population: Scored, a: float, gamma: float = 1.0
) -> Scored:
    """The share of population points z with [p_x(θ) / p(x)] / [p_z(θ) / p(z)] >= γ.

    `population` are the target's margins on samples that nobody was trained on (the holdout). All in logarithms: p_y = σ(φ) of a
    confident model rounds to 1, and of a wrong one to 0.
    """
    if not len(population.ids):
        raise BadInput("RMIA compares with unseen samples, and the holdout is empty.")
    if not 0 <= a <= 1 or not gamma > 0:
        raise BadInput(f"RMIA takes a in [0, 1] and gamma > 0, got a = {a} and gamma = {gamma}.")
    ratios, unseen = _log_ratios(target, references, a), _log_ratios(population, references, a)
    # x passes z where log ratio x - log γ >= log ratio z.
    passed = np.searchsorted(np.sort(unseen), ratios - math.log(gamma), side="right")
    return Scored(target.ids, passed / len(unseen), target.members)


def tune_offset(references: Margins, population: Ids, model: int = 0, gamma: float = 1.0) -> float:
    """The `a` that serves best against one of the references, whose members are known; the others are its references."""
    population_of = references.at(population).row(model)
    known = references.at(references.ids[~np.isin(references.ids, population)]).row(model)
    rest = references.models(np.delete(np.arange(len(references)), model))
    return max(OFFSETS, key=lambda a: roc(rmia(known, rest, population_of, a, gamma)).auc.value)


def _log_ratios(target: Scored, references: Margins, a: float) -> npt.NDArray[np.float64]:
    """log p_x(θ) - log p(x), with p(x) = ½((1 + a)·mean p_out + 1 - a): what an average of models with and without x would say."""
    references = references.at(target.ids)
    mean = _log_mean(references.values.astype(np.float64), ~references.members)
    with np.errstate(divide="ignore"):  # a = 1: the second part is nothing
        prior = np.logaddexp(math.log((1 + a) / 2) + mean, np.log((1 - a) / 2))
    ratios: npt.NDArray[np.float64] = log_expit(target.scores.astype(np.float64)) - prior
    return ratios


def _log_mean(values: npt.NDArray[np.float64], chosen: Flags) -> npt.NDArray[np.float64]:
    count = chosen.sum(0)
    if not count.size or count.min() < 1:
        raise BadInput(
            f"RMIA needs at least 1 reference model that was not trained on the sample; one sample has none in {len(values)}."
        )
    means: npt.NDArray[np.float64] = logsumexp(
        np.where(chosen, log_expit(values), -np.inf), axis=0
    ) - np.log(count)
    return means
