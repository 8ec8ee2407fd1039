"""U-LiRA (Hayes et al. 2024): does a model that unlearned a sample look like one without it?

It is two-sided and fits two Gaussians for each sample.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from duck.audits.attacks.base import ATTACKS, Attack
from duck.audits.attacks.gaussians import MIN_MODELS, Fit, fit
from duck.audits.scores import Flags, Margins, Places, Scored
from duck.audits.statistics import NORMAL_QUANTILE, SampleEstimate, rank_auc, roc
from duck.errors import BadInput
from duck.types import Ids

GROUPS = 10
"""Groups of models, on each side, that are left out in turn."""


@ATTACKS.register("u-lira")
class ULiraAttack(Attack):
    """Compare models of a pool that unlearned a sample with models that never saw it."""

    title = "U-LiRA"
    description = (
        "separates models that unlearned a sample from models that never saw it, sample by sample"
    )
    direction = (
        "separates models that unlearned a sample from models that never saw it; "
        "0.5 is chance, and another recipe alone gives more"
    )
    paper = "Hayes 2024, arXiv:2403.01218"
    tier = "full"
    needs = "pool"
    order = 10


def against_oracles(unlearned: Margins, oracles: Margins) -> Scored:
    """Compare models that unlearned a sample (members) with models that were never trained on it.

    There is a row for each pair of model and sample, with the score
    Λ = log N(φ; μ_u, σ_u) - log N(φ; μ_o, σ_o). The scored model is left out, and one of the other
    side with it.
    """
    oracles = oracles.at(unlearned.ids)
    members, others = unlearned.members, ~oracles.members
    _check_count(members, "unlearned")
    _check_count(others, "were never trained on")

    def fits(model: int) -> tuple[Fit, Fit]:
        return (
            fit(unlearned.values, _without_one(members, model % len(members))),
            fit(oracles.values, _without_one(others, model % len(others))),
        )

    rows = [
        _score(unlearned, model, *fits(model), members[model]) for model in range(len(unlearned))
    ]
    rows += [_score(oracles, model, *fits(model), others[model]) for model in range(len(oracles))]
    is_member = np.repeat([True, False], [len(unlearned), len(oracles)])
    return _join(rows, is_member, np.arange(len(rows)))


def against_not_requested(unlearned: Margins) -> Scored:
    """Compare unlearned models that had a sample and forgot it (members) with those that had not.

    All models come from the same method.
    """
    members = unlearned.members
    _check_count(members, "unlearned")
    _check_count(~members, "were not asked to unlearn")
    rows = []
    for model in range(len(unlearned)):
        requested = fit(unlearned.values, _without_one(members, model))
        others = fit(unlearned.values, _without_one(~members, model))
        rows += [
            _score(unlearned, model, requested, others, side)
            for side in (members[model], ~members[model])
        ]
    is_member = np.tile([True, False], len(unlearned))
    return _join(rows, is_member, np.repeat(np.arange(len(unlearned)), 2))


def add_fit_error(
    auc: SampleEstimate, attack: Callable[..., Scored], *sides: Margins
) -> SampleEstimate:
    """Widen the interval of an attack's AUC by the noise of the fits, which DeLong takes as given.

    A tenth of the models of a side is left out in turn and everything is fitted again (a
    delete-a-group jackknife). The interval never becomes narrower.
    """
    variance = _jackknife_variance(lambda *rest: _auc(attack(*rest)), sides)
    half = NORMAL_QUANTILE * math.sqrt(variance)
    return auc._replace(
        low=max(0.0, min(auc.low, auc.value - half)), high=min(1.0, max(auc.high, auc.value + half))
    )


def excess_over_unseen(unlearned: Margins, oracles: Margins, unseen: Ids) -> SampleEstimate:
    """Return the AUC against oracles on the forgotten samples minus that on unseen samples.

    Another recipe moves the margins of all samples. Only what forgotten samples show beyond unseen
    ones is memory of them.

    The interval adds the noise of the models, by a delete-a-group jackknife of the difference, and
    that of the choice of samples on both sides.
    """
    unlearned = treat_as_unlearned(unlearned, unseen)
    is_unseen = np.isin(unlearned.ids, unseen)

    def score(models: Margins, references: Margins) -> list[Scored]:
        return [
            against_oracles(models.at(ids), references)
            for ids in (unlearned.ids[~is_unseen], unlearned.ids[is_unseen])
        ]

    def difference(*sides: Margins) -> float:
        on_forgotten, on_unseen = score(*sides)
        return _auc(on_forgotten) - _auc(on_unseen)

    variance = _jackknife_variance(difference, (unlearned, oracles))
    variance += sum(_sample_variance(scored) for scored in score(unlearned, oracles))
    value = difference(unlearned, oracles)
    half = NORMAL_QUANTILE * math.sqrt(variance)
    return SampleEstimate(
        value, max(-1.0, value - half), min(1.0, value + half), len(unlearned.ids)
    )


def treat_as_unlearned(models: Margins, unseen: Ids) -> Margins:
    """Return margins in which unseen samples count as unlearned by some of the models.

    These are the models that unlearned one of the forgotten samples, in turn. In all models the
    fits would be less noisy than those of forgotten samples.
    """
    is_unseen = np.isin(models.ids, unseen)
    forgotten = np.flatnonzero(~is_unseen)
    members = models.members.copy()
    members[:, is_unseen] = members[:, np.resize(forgotten, int(is_unseen.sum()))]
    return Margins(models.ids, models.values, members)


def _sample_variance(scored: Scored) -> float:
    """Return the variance of the AUC that comes from the choice of samples.

    It is that of ids less that of rows: the noise of single rows is that of the models.
    """
    rows = np.arange(len(scored.ids)).astype(str)
    variances = []
    for ids in (scored.ids, rows):
        auc = roc(Scored(ids, scored.scores, scored.members)).auc
        # By the end of the interval that is not cut off at 0 or 1.
        half = max(auc.value - auc.low, auc.high - auc.value)
        variances.append((half / NORMAL_QUANTILE) ** 2)
    return max(0.0, variances[0] - variances[1])


def _jackknife_variance(statistic: Callable[..., float], sides: Sequence[Margins]) -> float:
    """Return the variance of a statistic, with groups of models of each side left out in turn."""
    variance = 0.0
    for index, side in enumerate(sides):
        groups = np.array_split(np.arange(len(side)), min(GROUPS, len(side)))
        values = []
        for group in groups:
            rest = side.models(np.setdiff1d(np.arange(len(side)), group))
            values.append(statistic(*sides[:index], rest, *sides[index + 1 :]))
        variance += (len(groups) - 1) * float(np.var(values))
    return variance


def _auc(scored: Scored) -> float:
    return rank_auc(scored.scores, scored.members)


def _score(models: Margins, model: int, unlearned: Fit, oracles: Fit, columns: Flags) -> Scored:
    """Return Λ of one model for these columns."""
    values = models.values[model].astype(np.float64)
    ratios = unlearned.log_density(values) - oracles.log_density(values)
    return Scored(models.ids, ratios, columns).take(columns)


def _join(rows: list[Scored], is_member: Flags, models: Places) -> Scored:
    """Join the scores of several models; `is_member` and `models` have an entry for each part."""
    sizes = [len(row.ids) for row in rows]
    return Scored(
        np.concatenate([row.ids for row in rows]),
        np.concatenate([row.scores for row in rows]),
        np.repeat(is_member, sizes),
        np.repeat(models, sizes),
    )


def _without_one(chosen: Flags, model: int) -> Flags:
    """Leave out one chosen model of every sample: the scored one or, if not chosen, the next.

    Both fits then have as many models, whichever side the scored model is on. Otherwise the fit
    with fewer models would be less likely to explain it. The AUC without a leak would then be below
    0.5 (0.46 with 12 models of CIFAR-10).
    """
    first = (model + np.roll(chosen, -model, axis=0).argmax(0)) % len(chosen)
    rest = chosen.copy()
    rest[first, np.arange(chosen.shape[1])] = False
    return rest


def _check_count(chosen: Flags, what: str) -> None:
    fewest = int(chosen.sum(0).min()) if chosen.size else 0
    if fewest <= MIN_MODELS:
        raise BadInput(
            f"A sample has only {fewest} models that {what} it. U-LiRA leaves out the scored model "
            f"and needs {MIN_MODELS} others: at least {MIN_MODELS + 1}."
        )
