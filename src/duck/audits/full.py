"""The full tier: attacks that compare many models with and without a sample, from a pool."""

from collections.abc import Mapping

import numpy as np
import torch
from scipy.stats import norm

from duck.audits.attacks.base import ModelAttack, model_attacks
from duck.audits.attacks.ulira import (
    ULiraAttack,
    add_fit_error,
    against_not_requested,
    against_oracles,
    excess_over_unseen,
)
from duck.audits.measurements import Measure, Measurement, OfModel, membership
from duck.audits.oracle import PoolEvidence
from duck.audits.outputs import Setting
from duck.audits.pool_measures import epsilon_per_sample, klom, leakage, memorisation, span_of
from duck.audits.scores import Array, Margins, Scored
from duck.audits.statistics import (
    NORMAL_QUANTILE,
    RATES,
    Roc,
    SampleEstimate,
    mean_interval,
    resolved_rates,
    roc,
)
from duck.audits.verdict import (
    MAX_ADVANTAGE,
    MODELS,
    Answer,
    Evidence,
    Limit,
    Limits,
    Row,
    Unit,
)
from duck.errors import BadInput
from duck.pools.reader import Pool, State
from duck.runtime import seeded
from duck.types import Estimate, Ids

MIN_MODELS = 20
MIN_ORACLES = MIN_MODELS // 2
"""Five oracles are compared with the other five, to see what equal models show."""
ULIRA = ULiraAttack.title
EXCESS = "U-LiRA excess"
ABOUT_EXCESS = (
    "AUC of U-LiRA on the candidates minus that on unseen samples; a change of recipe moves both, "
    "and the difference stays near 0"
)
AMONG_UNLEARNED = "U-LiRA among unlearned"
QUANTILE = 0.95
MAX_EXCESS_SAMPLES = 2000
"""On each side. More would take minutes, as every model is left out of its own fit."""
STATES: dict[str, State] = {"original": "before", "unlearned": "after"}
"""The models of a pool that stand for the original and for the unlearned model."""


def check_size(pool: Pool) -> None:
    """Raise an error where the pool is too small for the full tier."""
    oracles = len(pool.oracle) if pool.oracle else 0
    if len(pool) < MIN_MODELS or oracles < MIN_ORACLES:
        raise BadInput(
            f"The pool in {pool.files.folder} has {len(pool)} models and {oracles} oracles: the "
            f"full tier needs at least {MIN_MODELS} and {MIN_ORACLES}. The same `duck pool` "
            "command with more --models adds to it."
        )


def evidence_of(pool: Pool, setting: Setting, limits: Limits) -> PoolEvidence:
    """Run every attack on the pool and return the evidence for the audit."""
    check_size(pool)
    candidates = pool.ids[pool.roles == "candidate"]
    oracles = pool.margins("oracle").at(candidates)
    models = {name: pool.margins(state).at(candidates) for name, state in STATES.items()}
    rocs = {name: roc(against_oracles(margins, oracles)) for name, margins in models.items()}
    excess = ulira_excess(pool, setting)
    attacks = model_attacks(setting, "full", pool=pool)
    rows = {
        **_ulira_rows(models, oracles, rocs),
        **({EXCESS: _row(ABOUT_EXCESS, "AUC", excess)} if excess else {}),
        "ε": _epsilon_row(models["original"], models["unlearned"], oracles),
        **_klom_rows(pool, setting),
        **_memory_rows(pool, setting),
    }
    return PoolEvidence(
        measures=_model_measures(attacks, setting),
        rows=rows,
        exposed=_exposure(rows, limits),
        roc={ULIRA: {name: found.curve() for name, found in rocs.items()}},
        attacks=attacks,
    )


def _exposure(rows: Mapping[str, Row], limits: Limits) -> list[Evidence]:
    """Return the evidence of attacks on the pool, as advantages and as ε.

    ε is a lower bound: it can show exposure, and its absence proves nothing.
    """
    found = []
    for name, chance in ((EXCESS, 0.0), (AMONG_UNLEARNED, 0.5)):
        estimate = rows[name].unlearned if name in rows else None
        if estimate is not None:
            found.append(_advantage(name, estimate, chance, limits.max_advantage))
    epsilon = rows["ε"].unlearned
    assert epsilon is not None
    answer: Answer = "yes" if epsilon.value > limits.max_epsilon else "no"
    bound = Evidence(
        "ε", epsilon.value, epsilon.value, epsilon.value, limits.max_epsilon, 1.0, answer
    )
    return [*found, bound]


def _advantage(name: str, auc: Estimate, chance: float, wanted: float | None) -> Evidence:
    """Return an AUC as an advantage over chance; only a higher one is evidence."""
    assert auc.low is not None
    assert auc.high is not None
    value, low, high = (2 * (end - chance) for end in (auc.value, auc.low, auc.high))
    target = MAX_ADVANTAGE if wanted is None else wanted
    limit = max(target, 2 * (high - value)) if wanted is None else target
    answer: Answer = "undecided"
    if high < limit:
        answer = "no"
    elif low > target:
        answer = "yes"
    error = max((value - low) / NORMAL_QUANTILE, 1e-9)
    return Evidence(name, value, low, high, limit, float(norm.sf(value / error)), answer)


def _ulira_rows(
    models: Mapping[str, Margins], oracles: Margins, rocs: Mapping[str, Roc]
) -> dict[str, Row]:
    """Return the rows of U-LiRA: AUC, TPR, oracles among themselves, unlearned models likewise."""
    aucs = {
        name: add_fit_error(rocs[name].auc, against_oracles, margins, oracles)
        for name, margins in models.items()
    }
    rows = {ULIRA: _row(ULiraAttack.direction, "AUC", aucs)}
    for rate in resolved_rates(min(found.others for found in rocs.values())):
        rates = {name: found.tpr_at(rate) for name, found in rocs.items()}
        rows[_tpr_name(ULIRA, rate)] = _row(_about_tpr(rate), "%", rates)
    equal = roc(among_oracles(oracles)).auc
    rows["U-LiRA among oracles"] = Row(
        "U-LiRA of half of the oracles against the other half: so few equal models lie below 0.5, "
        "down to 0, since each is scored by fits without it",
        "AUC",
        equal.n,
        retrained=Estimate(equal.value),
    )
    not_requested = {
        name: add_fit_error(roc(against_not_requested(margins)).auc, against_not_requested, margins)
        for name, margins in models.items()
    }
    about = (
        "tells models that unlearned a sample from models that never had it and unlearned others; "
        "0.5 is chance"
    )
    rows[AMONG_UNLEARNED] = _row(about, "AUC", not_requested)
    return rows


def among_oracles(oracles: Margins) -> Scored:
    """Score half of the oracles, as if they had unlearned the samples, against the other half."""
    half = len(oracles) // 2
    first = oracles.models(np.arange(half))
    as_members = Margins(first.ids, first.values, np.ones_like(first.members))
    return against_oracles(as_members, oracles.models(np.arange(half, len(oracles))))


def ulira_excess(pool: Pool, setting: Setting) -> dict[str, SampleEstimate]:
    """Return U-LiRA's AUC on the candidates minus that on unseen samples, by model.

    Empty where the pool has no unseen samples of the retained classes. Unseen samples of a
    forgotten class would not do: models that still know the class differ from oracles on them too.
    """
    candidates = _draw_ids(pool.ids[pool.roles == "candidate"], setting.seed)
    unseen = _draw_ids(_unseen_ids(pool, setting), setting.seed)
    if not len(unseen):
        return {}
    ids = np.concatenate([candidates, unseen])
    oracles = pool.margins("oracle").at(ids)
    return {
        name: excess_over_unseen(pool.margins(state).at(ids), oracles, unseen)
        for name, state in STATES.items()
    }


def _draw_ids(ids: Ids, seed: int) -> Ids:
    order = torch.randperm(len(ids), generator=seeded(seed, "audit", "excess")).numpy()
    chosen: Ids = ids[np.sort(order[:MAX_EXCESS_SAMPLES])]
    return chosen


def _tpr_name(attack: str, rate: float) -> str:
    """Return the name of the row with a true-positive rate; stored audits have it too."""
    return f"{attack} hits" if rate == RATES[0] else f"{attack} hits {100 * rate:g} %"


def _about_tpr(rate: float) -> str:
    return f"true-positive rate at a false-positive rate of {100 * rate:g} %, which is chance"


def _unseen_ids(pool: Pool, setting: Setting) -> Ids:
    """Return the ids of unseen samples of the retained classes."""
    is_unseen = np.isin(pool.roles, ["test", "holdout"])
    ids: Ids = pool.ids[is_unseen & np.isin(pool.labels, setting.retained_classes)]
    return ids


def _klom_rows(pool: Pool, setting: Setting) -> dict[str, Row]:
    """Return the rows of KLoM on forget, retained and unseen samples."""
    samples = {
        "forget": pool.ids[pool.roles == "candidate"],
        "retain": pool.ids[pool.roles == "retain"],
        "test": _unseen_ids(pool, setting),
    }
    before, after, oracles = (pool.margins(state) for state in (*STATES.values(), "oracle"))
    rows: dict[str, Row] = {}
    for name, ids in samples.items():
        if len(ids):
            rows |= klom_rows(name, before.at(ids), after.at(ids), oracles.at(ids))
    return rows


def klom_rows(name: str, before: Margins, after: Margins, oracles: Margins) -> dict[str, Row]:
    """Return mean and 95th percentile of KLoM.

    Both models share the bins, so that one floor serves both.
    """
    span = span_of(oracles, before, after)
    original, unlearned = klom(before, oracles, span=span), klom(after, oracles, span=span)
    about = (
        f"divergence of margins from oracles' on {name} samples, {unlearned.models} models a side; "
        "retrained: oracles among themselves"
    )
    values = {
        "original": original.values,
        "unlearned": unlearned.values,
        "retrained": unlearned.floor,
    }
    before_p95, after_p95, floor_p95 = (
        Estimate(float(np.quantile(part, QUANTILE))) for part in values.values()
    )
    return {
        f"KLoM {name}": _row(
            f"mean {about}", "nats", {model: _mean(part) for model, part in values.items()}
        ),
        f"KLoM {name} p95": Row(
            f"95th percentile over samples of the {about}",
            "nats",
            len(after.ids),
            before_p95,
            after_p95,
            floor_p95,
        ),
    }


def _epsilon_row(before: Margins, after: Margins, oracles: Margins) -> Row:
    original = epsilon_per_sample(before, oracles)
    unlearned = epsilon_per_sample(after, oracles)
    limit = float(np.quantile(unlearned.limit, QUANTILE))
    why = f"{unlearned.counted} models a side cannot show more than {limit:.3f}"
    return Row(
        f"95th percentile over samples of the 95 % lower bound of ε; {why}",
        "score",
        len(after.ids),
        Estimate(float(np.quantile(original.lower, QUANTILE))),
        Estimate(float(np.quantile(unlearned.lower, QUANTILE))),
        limit=Limit(limit, why),
    )


def _memory_rows(pool: Pool, setting: Setting) -> dict[str, Row]:
    """Return the rows of memorisation, and of leakage of retained samples."""
    candidates = pool.ids[pool.roles == "candidate"]
    retained, unseen = pool.ids[pool.roles == "retain"], _unseen_ids(pool, setting)
    models = {name: pool.margins(state) for name, state in STATES.items()}
    about = (
        "mean confidence in the right class of models that were trained on the sample minus that "
        "of the pool's others, which were trained on other samples in its place; oracles are left "
        "out"
    )
    memorised = {
        name: _mean(memorisation(margins.at(candidates))) for name, margins in models.items()
    }
    rows = {"memorisation": _row(about, "score", memorised)}
    if len(retained) and len(unseen):
        about = (
            "tells retained from unseen samples by their margin, before and after unlearning; "
            "should not rise"
        )
        leaked = {
            name: mean_interval(leakage(margins, retained, unseen))
            for name, margins in models.items()
        }
        rows["leakage retained"] = _row(about, "AUC", leaked)
    return rows


def _model_measures(attacks: Mapping[str, ModelAttack], setting: Setting) -> list[Measure]:
    """Return the AUC of each attack, then its TPR at each rate that its non-members resolve."""
    measures = membership(attacks)
    for name, attack in attacks.items():
        measures += [
            Measure(_tpr_name(name, rate), _about_tpr(rate), "%", _tpr_of(attack, rate))
            for rate in resolved_rates(attack.count_non_members(setting))
        ]
    return measures


def _tpr_of(attack: ModelAttack, rate: float) -> OfModel:
    """Return the function that measures the true-positive rate of an attack."""
    return lambda outputs: Measurement(*roc(attack(outputs)).tpr_at(rate))


def _row(about: str, unit: Unit, estimates: Mapping[str, SampleEstimate]) -> Row:
    """Return the row of the models that there is an estimate of."""
    original, unlearned, retrained = (
        Estimate(*estimates[model][:3]) if model in estimates else None for model in MODELS
    )
    return Row(about, unit, estimates["unlearned"].n, original, unlearned, retrained)


def _mean(values: Array) -> SampleEstimate:
    value, n = float(values.mean()), len(values)
    half = 1.96 * (float(values.std(ddof=1)) / n**0.5 if n > 1 else 0.0)
    return SampleEstimate(value, value - half, value + half, n)
