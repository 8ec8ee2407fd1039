"""The full tier: attacks that compare many models with and without a sample, from a pool."""

from collections.abc import Callable, Mapping

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
from duck.audits.epsilon import epsilon_per_sample
from duck.audits.intervals import SampleEstimate, binomial_error
from duck.audits.klom import klom, p95, span_of
from duck.audits.limits import MAX_ADVANTAGE, Limits
from duck.audits.measurements import Measure, Measurement, ScoringFunction, auc_of, mean
from duck.audits.memorisation import memorisation, retained_leakage
from duck.audits.oracle import PoolEvidence
from duck.audits.outputs import ModelOutputs, Setting
from duck.audits.roc import RATES, Roc, least_others, roc
from duck.audits.scores import Floats, Margins, Scored
from duck.audits.verdict import MODELS, Answer, Evidence, Limit, Row, Unit
from duck.errors import BadInput
from duck.pools.reader import Pool, State
from duck.runtime import seeded
from duck.types import Estimate, Ids

MIN_MODELS = 20
MIN_ORACLES = MIN_MODELS // 2
"""Five oracles are compared with the other five, to see what equal models show."""
ULIRA = ULiraAttack.title
EXCESS = "U-LiRA excess"
AMONG_UNLEARNED = "U-LiRA among unlearned"
QUANTILE = 0.95
MAX_EXCESS_SAMPLES = 2000
"""On each side. More would take minutes, as every model is left out of its own fit."""
BEFORE_AND_AFTER = ("original", "unlearned")
STATES: tuple[State, State, State] = ("before", "after", "oracle")
ABOUT = {
    "oracles": "U-LiRA of half of the oracles against the other half: so few equal models lie "
    "below 0.5, down to 0, since each is scored by fits without it",
    "tpr": "true-positive rate at a false-positive rate of",
    "not requested": "tells models that unlearned a sample from models that never had it and "
    "unlearned others; 0.5 is chance",
    "excess": "AUC of U-LiRA on the candidates minus that on unseen samples; a change of recipe "
    "moves both, and the difference stays near 0",
    "epsilon": "95th percentile over samples of the 95 % lower bound of ε",
    "klom": "divergence of margins from oracles' on",
    "memorisation": "mean confidence in the right class of models that were trained on the sample "
    "minus that of the pool's others, which were trained on other samples in its place; oracles "
    "are left out",
    "leakage": "tells retained from unseen samples by their margin, before and after unlearning; "
    "should not rise",
}


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
    rocs = {name: roc(scored) for name, scored in _ulira_scores(pool).items()}
    attacks = model_attacks(setting, "full", pool=pool)
    rows = {
        **_ulira_rows(pool, rocs),
        **_excess_rows(pool, setting),
        **_sample_rows(pool, setting),
    }
    return PoolEvidence(
        measures=_model_measures(attacks, setting),
        rows=rows,
        exposed=_exposure(rows, limits),
        roc={ULIRA: {model: rocs[model].curve() for model in BEFORE_AND_AFTER}},
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
    error = max((value - low) / float(norm.ppf(0.975)), 1e-9)
    return Evidence(name, value, low, high, limit, float(norm.sf(value / error)), answer)


def _ulira_scores(pool: Pool) -> dict[str, Scored]:
    """Return the scores of U-LiRA for the models before and after unlearning, and for oracles."""
    before, after, oracles = (pool.margins(state, "candidate") for state in STATES)
    models = {"unlearned": after, "original": before}
    scores = {name: against_oracles(margins, oracles) for name, margins in models.items()}
    half = len(oracles) // 2
    first = oracles.models(np.arange(half))
    second = oracles.models(np.arange(half, len(oracles)))
    as_members = Margins(first.ids, first.values, np.ones_like(first.members))
    return {**scores, "retrained": against_oracles(as_members, second)}


def _ulira_rows(pool: Pool, rocs: Mapping[str, Roc]) -> dict[str, Row]:
    """Return the rows of U-LiRA: AUC, TPR, oracles among themselves, unlearned models likewise."""
    before, after, oracles = (pool.margins(state, "candidate") for state in STATES)
    models = {"original": before, "unlearned": after}
    aucs = {
        name: add_fit_error(rocs[name].auc, against_oracles, margins, oracles)
        for name, margins in models.items()
    }
    rows = {ULIRA: _row(ULiraAttack.direction, "AUC", aucs)}
    for rate in _resolved_rates(min(rocs[name].others for name in models)):
        rates = {name: rocs[name].tpr_at(rate) for name in models}
        rows[_tpr_name(ULIRA, rate)] = _row(_about_tpr(rate), "%", rates)
    equal = rocs["retrained"].auc
    rows["U-LiRA among oracles"] = Row(
        ABOUT["oracles"], "AUC", equal.n, None, None, Estimate(equal.value, None, None)
    )
    not_requested = {
        name: add_fit_error(roc(against_not_requested(margins)).auc, against_not_requested, margins)
        for name, margins in models.items()
    }
    rows[AMONG_UNLEARNED] = _row(ABOUT["not requested"], "AUC", not_requested)
    return rows


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
    before, after, oracles = (pool.margins(state).at(ids) for state in STATES)
    return {
        name: excess_over_unseen(models, oracles, unseen)
        for name, models in (("unlearned", after), ("original", before))
    }


def _draw_ids(ids: Ids, seed: int) -> Ids:
    order = torch.randperm(len(ids), generator=seeded(seed, "audit", "excess")).numpy()
    chosen: Ids = ids[np.sort(order[:MAX_EXCESS_SAMPLES])]
    return chosen


def _excess_rows(pool: Pool, setting: Setting) -> dict[str, Row]:
    excess = ulira_excess(pool, setting)
    return {EXCESS: _row(ABOUT["excess"], "AUC", excess)} if excess else {}


def _resolved_rates(non_members: int) -> list[float]:
    """Return the false-positive rates that this number of non-members can resolve."""
    return [rate for rate in RATES if non_members >= least_others(rate)]


def _tpr_name(attack: str, rate: float) -> str:
    """Return the name of the row with a true-positive rate; stored audits have it too."""
    return f"{attack} hits" if rate == RATES[0] else f"{attack} hits {100 * rate:g} %"


def _about_tpr(rate: float) -> str:
    return f"{ABOUT['tpr']} {100 * rate:g} %, which is chance"


def _sample_rows(pool: Pool, setting: Setting) -> dict[str, Row]:
    """Return the rows of ε, KLoM, memorisation and leakage."""
    before, after, oracles = (pool.margins(state) for state in STATES)
    candidates = pool.ids[pool.roles == "candidate"]
    retained = pool.ids[pool.roles == "retain"]
    unseen = _unseen_ids(pool, setting)
    rows = {"ε": _epsilon_row(before.at(candidates), after.at(candidates), oracles)}
    for name, ids in (("forget", candidates), ("retain", retained), ("test", unseen)):
        if len(ids):
            rows |= _klom_rows(name, before.at(ids), after.at(ids), oracles.at(ids))
    estimates = {
        "original": _mean(memorisation(before.at(candidates)).values),
        "unlearned": _mean(memorisation(after.at(candidates)).values),
    }
    rows["memorisation"] = _row(ABOUT["memorisation"], "score", estimates)
    if len(retained) and len(unseen):
        leakage = retained_leakage(before, after, retained, unseen)
        estimates = {"original": leakage.before, "unlearned": leakage.after}
        rows["leakage retained"] = _row(ABOUT["leakage"], "AUC", estimates)
    return rows


def _unseen_ids(pool: Pool, setting: Setting) -> Ids:
    """Return the ids of unseen samples of the retained classes."""
    is_unseen = np.isin(pool.roles, ["test", "holdout"])
    ids: Ids = pool.ids[is_unseen & np.isin(pool.labels, setting.retained_classes)]
    return ids


def _klom_rows(name: str, before: Margins, after: Margins, oracles: Margins) -> dict[str, Row]:
    """Return mean and 95th percentile of KLoM.

    Both models share the bins, so that one floor serves both.
    """
    span = span_of(oracles, before, after)
    original, unlearned = klom(before, oracles, span=span), klom(after, oracles, span=span)
    about = (
        f"{ABOUT['klom']} {name} samples, {unlearned.models} models a side; "
        "retrained: oracles among themselves"
    )
    values = {
        "original": original.values,
        "unlearned": unlearned.values,
        "retrained": unlearned.floor,
    }
    means = {model: _mean(part) for model, part in values.items()}
    p95_original, p95_unlearned, p95_retrained = (
        Estimate(p95(part), None, None) for part in values.values()
    )
    return {
        f"KLoM {name}": _row(f"mean {about}", "nats", means),
        f"KLoM {name} p95": Row(
            f"95th percentile over samples of the {about}",
            "nats",
            len(unlearned.ids),
            p95_original,
            p95_unlearned,
            p95_retrained,
        ),
    }


def _epsilon_row(before: Margins, after: Margins, oracles: Margins) -> Row:
    original = epsilon_per_sample(before, oracles)
    unlearned = epsilon_per_sample(after, oracles)
    limit = float(np.quantile(unlearned.limit, QUANTILE))
    why = f"{unlearned.counted} models a side cannot show more than {limit:.3f}"
    return Row(
        f"{ABOUT['epsilon']}; {why}",
        "score",
        len(after.ids),
        Estimate(float(np.quantile(original.lower, QUANTILE)), None, None),
        Estimate(float(np.quantile(unlearned.lower, QUANTILE)), None, None),
        None,
        limit=Limit(limit, why),
    )


def _model_measures(attacks: Mapping[str, ModelAttack], setting: Setting) -> list[Measure]:
    """Return the AUC of each attack, then its TPR at each rate that its non-members resolve."""
    measures = [
        Measure(
            name,
            attack.direction,
            "AUC",
            auc_of(attack),
            question="exposed" if attack.decisive else None,
            alternative="two-sided",
        )
        for name, attack in attacks.items()
    ]
    for name, attack in attacks.items():
        rates = _resolved_rates(attack.count_non_members(setting))
        measures += [
            Measure(_tpr_name(name, rate), _about_tpr(rate), "%", _tpr_of(attack, rate))
            for rate in rates
        ]
    return measures


def _tpr_of(attack: ScoringFunction, rate: float) -> Callable[[ModelOutputs], Measurement]:
    """Return the function that measures the true-positive rate of an attack."""

    def measure_tpr(outputs: ModelOutputs) -> Measurement:
        tpr = roc(attack(outputs)).tpr_at(rate)
        return Measurement(tpr.value, tpr.low, tpr.high, binomial_error(tpr.value, tpr.n), tpr.n)

    return measure_tpr


def _row(about: str, unit: Unit, estimates: Mapping[str, SampleEstimate]) -> Row:
    """Return the row of the models that there is an estimate of."""
    original, unlearned, retrained = (
        Estimate(*estimates[model][:3]) if model in estimates else None for model in MODELS
    )
    return Row(about, unit, estimates["unlearned"].n, original, unlearned, retrained)


def _mean(values: Floats) -> SampleEstimate:
    found = mean(values.astype(np.float64))
    half = 1.96 * found.error
    return SampleEstimate(found.value, found.value - half, found.value + half, found.n)
