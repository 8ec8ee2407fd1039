"""U-LiRA (Hayes et al. 2024): does a model that unlearned a sample look like one that never saw it? Two-sided, per sample."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, rankdata

from duck.audits.attacks.lira import LEAST, TINY, out_moments
from duck.audits.intervals import LEVEL, Estimate
from duck.audits.scores import Flags, Floats, Margins, Scored
from duck.errors import BadInput

PRIOR = 4.0
"""ν₀: so many models' worth of the variance that all samples share, beside each sample's own."""
GROUPS = 10
"""Of models, on each side, that are left out in turn."""


class Fit(NamedTuple):
    """A Gaussian for each sample."""

    mean: npt.NDArray[np.float64]
    variance: npt.NDArray[np.float64]

    def log_density(self, values: Floats) -> npt.NDArray[np.float64]:
        """Up to a constant."""
        return -0.5 * (np.log(self.variance) + np.square(values - self.mean) / self.variance)


def against_oracles(unlearned: Margins, oracles: Margins, prior: float = PRIOR) -> Scored:
    """The main game: models that unlearned a sample (members) against models that were never trained on it.

    A row for each pair of model and sample: Λ = log N(φ; μ_u, σ_u) - log N(φ; μ_o, σ_o), the judged model left out of both fits.
    """
    oracles = oracles.at(unlearned.ids)
    _check(unlearned.members, "unlearned")
    _check(~oracles.members, "were never trained on")
    ours, theirs = (
        fit(unlearned.values, unlearned.members, prior),
        fit(oracles.values, ~oracles.members, prior),
    )
    rows = []
    for model in range(len(unlearned)):
        left = fit(unlearned.values, _without(unlearned.members, model), prior)
        rows.append(_judged(unlearned, model, left, theirs, unlearned.members[model]))
    for model in range(len(oracles)):
        left = fit(oracles.values, _without(~oracles.members, model), prior)
        rows.append(_judged(oracles, model, ours, left, ~oracles.members[model]))
    return _pairs(unlearned, rows, np.repeat([True, False], [len(unlearned), len(oracles)]))


def against_not_requested(unlearned: Margins, prior: float = PRIOR) -> Scored:
    """The second game: of the same unlearned models, those that were asked to forget a sample (members) against the others."""
    _check(unlearned.members, "unlearned")
    _check(~unlearned.members, "were not asked to unlearn")
    rows, sides = [], []
    for model in range(len(unlearned)):
        asked, others = (
            fit(unlearned.values, _without(side, model), prior)
            for side in (unlearned.members, ~unlearned.members)
        )
        for side in (True, False):
            rows.append(_judged(unlearned, model, asked, others, unlearned.members[model] == side))
            sides.append(side)
    return _pairs(unlearned, rows, np.array(sides), rows_of_a_model=2)


def with_fits(auc: Estimate, game: Callable[..., Scored], *sides: Margins) -> Estimate:
    """The AUC of a game with an interval that holds the noise of the fits as well, which DeLong's takes as given.

    A tenth of the models of a side is left out in turn and everything is fitted anew (delete-a-group jackknife); never narrower.
    """
    variance = 0.0
    for place, side in enumerate(sides):
        groups = np.array_split(np.arange(len(side)), min(GROUPS, len(side)))
        rests = (side.models(np.setdiff1d(np.arange(len(side)), group)) for group in groups)
        areas = [_area(game(*sides[:place], rest, *sides[place + 1 :])) for rest in rests]
        variance += (len(groups) - 1) * float(np.var(areas))
    half = float(norm.ppf((1 + LEVEL) / 2)) * math.sqrt(variance)
    return auc._replace(
        low=max(0.0, min(auc.low, auc.value - half)), high=min(1.0, max(auc.high, auc.value + half))
    )


def _area(scored: Scored) -> float:
    """The AUC alone."""
    members, others = int(scored.members.sum()), int((~scored.members).sum())
    return float(
        (rankdata(scored.scores)[scored.members].sum() - members * (members + 1) / 2)
        / (members * others)
    )


def fit(values: Floats, chosen: Flags, prior: float) -> Fit:
    """Of each column's chosen entries; σ² = (ν₀ s₀² + (n-1) s²) / (ν₀ + n - 1), s₀² pooled over the columns."""
    mean, deviation = out_moments(values, chosen)
    freedom = chosen.sum(0) - 1
    pooled = float((freedom * deviation**2).sum() / freedom.sum())
    return Fit(
        mean, np.maximum((prior * pooled + freedom * deviation**2) / (prior + freedom), TINY**2)
    )


def _judged(
    models: Margins, model: int, ours: Fit, theirs: Fit, where: Flags
) -> tuple[Flags, npt.NDArray[np.float64]]:
    values = models.values[model].astype(np.float64)
    return where, (ours.log_density(values) - theirs.log_density(values))[where]


def _pairs(
    models: Margins,
    rows: list[tuple[Flags, npt.NDArray[np.float64]]],
    sides: Flags,
    rows_of_a_model: int = 1,
) -> Scored:
    sizes = [len(scores) for _, scores in rows]
    numbers = np.arange(len(rows)) // rows_of_a_model
    ids = np.concatenate([models.ids[where] for where, _ in rows])
    return Scored(
        ids,
        np.concatenate([scores for _, scores in rows]),
        np.repeat(sides, sizes),
        np.repeat(numbers, sizes),
    )


def _without(chosen: Flags, model: int) -> Flags:
    left = chosen.copy()
    left[model] = False
    return left


def _check(chosen: Flags, what: str) -> None:
    fewest = int(chosen.sum(0).min()) if chosen.size else 0
    if fewest <= LEAST:
        raise BadInput(
            f"A sample has only {fewest} models that {what} it; the judged one left out, {LEAST} must stay: at least {LEAST + 1}."
        )
