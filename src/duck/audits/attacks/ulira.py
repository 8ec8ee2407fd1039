"""U-LiRA (Hayes et al. 2024): does a model that unlearned a sample look like one without it?

It is two-sided and fits two Gaussians for each sample.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, rankdata

from duck.audits.attacks.base import ATTACKS, Attack
from duck.audits.attacks.lira import MIN_DEVIATION, MIN_MODELS, column_moments
from duck.audits.intervals import LEVEL, SampleEstimate
from duck.audits.scores import Flags, Floats, Margins, Scored
from duck.errors import BadInput

PRIOR = 4.0
"""ν₀: the weight, in models, of the variance that all samples share, besides each sample's own."""
GROUPS = 10
"""Groups of models, on each side, that are left out in turn."""


@ATTACKS.register("u-lira")
class ULiraAttack(Attack):
    """Compare models of a pool that unlearned a sample with models that never saw it."""

    title = "U-LiRA"
    description = (
        "tells models that unlearned a sample from models that never saw it, sample by sample"
    )
    direction = (
        "tells models that unlearned a sample from models that never saw it; "
        "judged against chance, 0.5"
    )
    paper = "Hayes 2024, arXiv:2403.01218"
    tier = "full"
    needs = "pool"
    decisive = True
    order = 10


class Fit(NamedTuple):
    """A Gaussian for each sample."""

    mean: npt.NDArray[np.float64]
    variance: npt.NDArray[np.float64]

    def log_density(self, values: Floats) -> npt.NDArray[np.float64]:
        """Return the logarithm of the density, up to a constant."""
        return -0.5 * (np.log(self.variance) + np.square(values - self.mean) / self.variance)


class _ModelScores(NamedTuple):
    """Scores of one model, on the samples (columns) that it is scored on."""

    columns: Flags
    scores: npt.NDArray[np.float64]


def against_oracles(unlearned: Margins, oracles: Margins, prior: float = PRIOR) -> Scored:
    """Compare models that unlearned a sample (members) with models that were never trained on it.

    There is a row for each pair of model and sample, with the score
    Λ = log N(φ; μ_u, σ_u) - log N(φ; μ_o, σ_o). The scored model is left out of both fits.
    """
    oracles = oracles.at(unlearned.ids)
    _check_count(unlearned.members, "unlearned")
    _check_count(~oracles.members, "were never trained on")
    unlearned_fit = fit(unlearned.values, unlearned.members, prior)
    oracle_fit = fit(oracles.values, ~oracles.members, prior)
    rows = []
    for model in range(len(unlearned)):
        others = fit(unlearned.values, _without(unlearned.members, model), prior)
        rows.append(_score(unlearned, model, others, oracle_fit, unlearned.members[model]))
    for model in range(len(oracles)):
        others = fit(oracles.values, _without(~oracles.members, model), prior)
        rows.append(_score(oracles, model, unlearned_fit, others, ~oracles.members[model]))
    return _join(unlearned, rows, np.repeat([True, False], [len(unlearned), len(oracles)]))


def against_not_requested(unlearned: Margins, prior: float = PRIOR) -> Scored:
    """Compare unlearned models that had a sample and forgot it (members) with those that had not.

    All models come from the same method.
    """
    _check_count(unlearned.members, "unlearned")
    _check_count(~unlearned.members, "were not asked to unlearn")
    rows = []
    for model in range(len(unlearned)):
        requested = fit(unlearned.values, _without(unlearned.members, model), prior)
        others = fit(unlearned.values, _without(~unlearned.members, model), prior)
        for is_member in (True, False):
            columns = unlearned.members[model] == is_member
            rows.append(_score(unlearned, model, requested, others, columns))
    sides = np.tile([True, False], len(unlearned))
    return _join(unlearned, rows, sides, rows_of_a_model=2)


def add_fit_error(
    auc: SampleEstimate, attack: Callable[..., Scored], *sides: Margins
) -> SampleEstimate:
    """Widen the interval of an attack's AUC by the noise of the fits, which DeLong takes as given.

    A tenth of the models of a side is left out in turn and everything is fitted again (a
    delete-a-group jackknife). The interval never becomes narrower.
    """
    variance = 0.0
    for index, side in enumerate(sides):
        groups = np.array_split(np.arange(len(side)), min(GROUPS, len(side)))
        areas = []
        for group in groups:
            rest = side.models(np.setdiff1d(np.arange(len(side)), group))
            areas.append(_auc(attack(*sides[:index], rest, *sides[index + 1 :])))
        variance += (len(groups) - 1) * float(np.var(areas))
    half = float(norm.ppf((1 + LEVEL) / 2)) * math.sqrt(variance)
    return auc._replace(
        low=max(0.0, min(auc.low, auc.value - half)), high=min(1.0, max(auc.high, auc.value + half))
    )


def _auc(scored: Scored) -> float:
    """Return the AUC without its interval."""
    members = int(scored.members.sum())
    others = int((~scored.members).sum())
    ranks = rankdata(scored.scores)[scored.members].sum()
    return float((ranks - members * (members + 1) / 2) / (members * others))


def fit(values: Floats, chosen: Flags, prior: float) -> Fit:
    """Fit a Gaussian to the chosen entries of each column.

    σ² = (ν₀ s₀² + (n-1) s²) / (ν₀ + n - 1), with s₀² pooled over the columns.
    """
    mean, deviation = column_moments(values, chosen)
    freedom = chosen.sum(0) - 1
    pooled = float((freedom * deviation**2).sum() / freedom.sum())
    variance = (prior * pooled + freedom * deviation**2) / (prior + freedom)
    return Fit(mean, np.maximum(variance, MIN_DEVIATION**2))


def _score(
    models: Margins, model: int, unlearned: Fit, oracles: Fit, columns: Flags
) -> _ModelScores:
    """Return Λ of one model for these columns."""
    values = models.values[model].astype(np.float64)
    ratios = unlearned.log_density(values) - oracles.log_density(values)
    return _ModelScores(columns, ratios[columns])


def _join(
    models: Margins, rows: list[_ModelScores], sides: Flags, rows_of_a_model: int = 1
) -> Scored:
    """Join the scores of all models; `sides` says for each entry whether it is of members."""
    sizes = [len(row.scores) for row in rows]
    numbers = np.arange(len(rows)) // rows_of_a_model
    return Scored(
        np.concatenate([models.ids[row.columns] for row in rows]),
        np.concatenate([row.scores for row in rows]),
        np.repeat(sides, sizes),
        np.repeat(numbers, sizes),
    )


def _without(chosen: Flags, model: int) -> Flags:
    """Leave out one model."""
    others = chosen.copy()
    others[model] = False
    return others


def _check_count(chosen: Flags, what: str) -> None:
    fewest = int(chosen.sum(0).min()) if chosen.size else 0
    if fewest <= MIN_MODELS:
        raise BadInput(
            f"A sample has only {fewest} models that {what} it. U-LiRA leaves out the scored model "
            f"and needs {MIN_MODELS} others: at least {MIN_MODELS + 1}."
        )
