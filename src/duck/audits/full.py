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
    treat_as_unlearned,
)
from duck.audits.measurements import Measure, Measurement, OfModel, mean, membership
from duck.audits.oracle import PoolEvidence
from duck.audits.outputs import Setting
from duck.audits.pool_measures import (
    AMONG_UNLEARNED,
    EPSILON,
    EPSILON_EXCESS,
    EXCESS,
    epsilon_per_sample,
    klom,
    leakage,
    memorisation,
    span_of,
)
from duck.audits.scores import Margins, Scored
from duck.audits.statistics import (
    NORMAL_QUANTILE,
    Roc,
    SampleEstimate,
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
from duck.pools.reader import Pool
from duck.runtime import seeded
from duck.types import Estimate, Ids

MIN_MODELS = 20
MIN_ORACLES = MIN_MODELS // 2
"""Five oracles are compared with the other five, to see what equal models show."""
ULIRA = ULiraAttack.title
QUANTILE = 0.95
MAX_EXCESS_SAMPLES = 2000
"""On each side. More would take minutes, as every model is left out of its own fit."""
ABOUT = {
    "among oracles": "U-LiRA of half of the oracles, as if they had unlearned the samples, against "
    "the other half: what the attack shows where there is no leak",
    AMONG_UNLEARNED: "separates models that unlearned a sample from models that never had it and "
    "unlearned others; 0.5 is chance",
    EXCESS: "AUC of U-LiRA on the candidates minus that on unseen samples; another recipe changes "
    "both, and the difference stays near 0",
    EPSILON_EXCESS: "ε on forget samples minus ε on unseen samples; another recipe raises both",
    "memorisation": "mean confidence in the right class of models that were trained on the sample "
    "minus that of the pool's others, which were trained on other samples in its place; oracles "
    "are left out",
    "leakage": "separates retain samples from unseen samples by their margin, before and after "
    "unlearning; should not rise",
}
Models = Mapping[str, Margins]
"""The models of a pool by what they stand for: the original (before unlearning), unlearned ones."""


def check_pool_models(models: int) -> None:
    """Raise an error where a pool of this size would be too small, before it is made."""
    if models < MIN_MODELS:
        raise BadInput(
            f"The full tier needs a pool of at least {MIN_MODELS} models, got {models}: give more "
            "with --pool-models, in Python pool_models=."
        )


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
    models = {"original": pool.margins("before"), "unlearned": pool.margins("after")}
    oracles = pool.margins("oracle")
    is_retained_class = np.isin(pool.labels, setting.retained_classes)
    samples: dict[str, Ids] = {
        "forget": pool.ids[pool.roles == "candidate"],
        "retain": pool.ids[pool.roles == "retain"],
        # Models that still know a forgotten class differ from oracles on its unseen samples too.
        "test": pool.ids[np.isin(pool.roles, ["test", "holdout"]) & is_retained_class],
    }
    forget = {name: margins.at(samples["forget"]) for name, margins in models.items()}
    forget_oracles = oracles.at(samples["forget"])
    rocs = {name: roc(against_oracles(margins, forget_oracles)) for name, margins in forget.items()}
    rows = _ulira_rows(forget, forget_oracles, rocs)
    if len(samples["test"]):
        rows[EXCESS] = _row(
            ABOUT[EXCESS],
            "AUC",
            ulira_excess(models, oracles, samples["forget"], samples["test"], setting.seed),
        )
    rows |= epsilon_rows(models, oracles, samples["forget"], _draw(samples["test"], setting.seed))
    for name, ids in samples.items():
        if len(ids):
            rows |= klom_rows(name, {key: models[key].at(ids) for key in models}, oracles.at(ids))
    memorised = {name: mean(memorisation(margins)) for name, margins in forget.items()}
    rows["memorisation"] = _row(ABOUT["memorisation"], "score", memorised)
    if len(samples["retain"]) and len(samples["test"]):
        leaked = {
            name: leakage(margins, samples["retain"], samples["test"])
            for name, margins in models.items()
        }
        rows["leakage retained"] = _row(ABOUT["leakage"], "AUC", leaked)
    attacks = model_attacks(setting, "full", pool=pool)
    return PoolEvidence(
        measures=model_measures(attacks, setting),
        rows=rows,
        exposed=pool_exposure(rows, limits),
        roc={ULIRA: {name: found.curve() for name, found in rocs.items()}},
        attacks=attacks,
    )


def pool_exposure(rows: Mapping[str, Row], limits: Limits) -> list[Evidence]:
    """Return the evidence of attacks on the pool, as advantages and as ε.

    ε is a lower bound: a high one shows exposure, and a low one shows nothing. Another recipe
    raises it on all samples, so that only what it is higher than on unseen samples counts.
    """
    found = []
    for name, chance in ((EXCESS, 0.0), (AMONG_UNLEARNED, 0.5)):
        estimate = rows[name].unlearned if name in rows else None
        if estimate is not None:
            found.append(_advantage(name, estimate, chance, limits.max_advantage))
    epsilon = rows[EPSILON_EXCESS].unlearned if EPSILON_EXCESS in rows else None
    if epsilon is not None and epsilon.value > limits.max_epsilon:
        interval = (epsilon.value,) * 3
        found.append(Evidence(EPSILON_EXCESS, *interval, limits.max_epsilon, 1.0, "yes"))
    return found


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


def _ulira_rows(models: Models, oracles: Margins, rocs: Mapping[str, Roc]) -> dict[str, Row]:
    """Return the rows of U-LiRA: AUC, TPR, and the AUC among oracles and among unlearned models."""
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
        ABOUT["among oracles"], "AUC", equal.n, retrained=Estimate(equal.value)
    )
    not_requested = {
        name: add_fit_error(roc(against_not_requested(margins)).auc, against_not_requested, margins)
        for name, margins in models.items()
    }
    rows[AMONG_UNLEARNED] = _row(ABOUT[AMONG_UNLEARNED], "AUC", not_requested)
    return rows


def among_oracles(oracles: Margins) -> Scored:
    """Score half of the oracles, as if they had unlearned the samples, against the other half."""
    half = len(oracles) // 2
    first = oracles.models(np.arange(half))
    as_members = Margins(first.ids, first.values, np.ones_like(first.members))
    return against_oracles(as_members, oracles.models(np.arange(half, len(oracles))))


def ulira_excess(
    models: Models, oracles: Margins, candidates: Ids, unseen: Ids, seed: int
) -> dict[str, SampleEstimate]:
    """Return U-LiRA's AUC on the candidates minus that on unseen samples, by model."""
    drawn = _draw(unseen, seed)
    both = np.concatenate([_draw(candidates, seed), drawn])
    return {
        name: excess_over_unseen(margins.at(both), oracles.at(both), drawn)
        for name, margins in models.items()
    }


def _draw(ids: Ids, seed: int) -> Ids:
    """Return at most MAX_EXCESS_SAMPLES of the samples, drawn at random."""
    order = torch.randperm(len(ids), generator=seeded(seed, "audit", "excess")).numpy()
    drawn: Ids = ids[np.sort(order[:MAX_EXCESS_SAMPLES])]
    return drawn


def klom_rows(name: str, models: Models, oracles: Margins) -> dict[str, Row]:
    """Return mean and 95th percentile of KLoM on the samples of one split.

    Both models share the bins, so that one floor serves both.
    """
    span = span_of(oracles, *models.values())
    found = {model: klom(margins, oracles, span=span) for model, margins in models.items()}
    values = {model: divergences.values for model, divergences in found.items()}
    values["retrained"] = found["unlearned"].floor
    about = (
        f"divergence of margins from those of oracles on {name} samples, "
        f"{found['unlearned'].models} models a side; retrained: oracles against oracles"
    )
    original, unlearned, retrained = (
        Estimate(float(np.quantile(values[model], QUANTILE))) for model in MODELS
    )
    means = {model: mean(part) for model, part in values.items()}
    return {
        f"KLoM {name}": _row(f"mean {about}", "nats", means),
        f"KLoM {name} p95": Row(
            f"95th percentile over samples of the {about}",
            "nats",
            len(oracles.ids),
            original,
            unlearned,
            retrained,
        ),
    }


def epsilon_rows(models: Models, oracles: Margins, forget: Ids, unseen: Ids) -> dict[str, Row]:
    """Return the 95th percentile of the lower bounds of ε, and by how much it exceeds unseen ones.

    A model of another recipe has a high ε on unseen samples, too.
    """
    on_forget = {
        name: epsilon_per_sample(models[name].at(forget), oracles.at(forget))
        for name in ("original", "unlearned")
    }
    bounds = {name: float(np.quantile(found.lower, QUANTILE)) for name, found in on_forget.items()}
    limit = float(np.quantile(on_forget["unlearned"].limit, QUANTILE))
    why = f"{on_forget['unlearned'].counted} models a side cannot show more than {limit:.3f}"
    limited = Limit(limit, why)

    def row(about: str, values: Mapping[str, float]) -> Row:
        original, unlearned = (Estimate(values[name]) for name in ("original", "unlearned"))
        return Row(f"{about}; {why}", "score", len(forget), original, unlearned, limit=limited)

    rows = {EPSILON: row("95th percentile over samples of the 95 % lower bound of ε", bounds)}
    if len(unseen):
        both = np.concatenate([forget, unseen])
        excess = {}
        for name in on_forget:
            margins = treat_as_unlearned(models[name].at(both), unseen).at(unseen)
            on_unseen = epsilon_per_sample(margins, oracles.at(unseen))
            excess[name] = bounds[name] - float(np.quantile(on_unseen.lower, QUANTILE))
        rows[EPSILON_EXCESS] = row(ABOUT[EPSILON_EXCESS], excess)
    return rows


def model_measures(attacks: Mapping[str, ModelAttack], setting: Setting) -> list[Measure]:
    """Return the AUC of each attack, then its TPR at each rate that its non-members resolve."""
    measures = membership(attacks)
    for name, attack in attacks.items():
        measures += [
            Measure(_tpr_name(name, rate), _about_tpr(rate), "%", _tpr_of(attack, rate))
            for rate in resolved_rates(attack.count_non_members(setting))
        ]
    return measures


def _tpr_of(attack: ModelAttack, rate: float) -> OfModel:
    return lambda outputs: Measurement(*roc(attack(outputs)).tpr_at(rate))


def _tpr_name(attack: str, rate: float) -> str:
    """Return the name of the row with a true-positive rate."""
    return f"{attack} TPR at {100 * rate:g} % FPR"


def _about_tpr(rate: float) -> str:
    return f"true-positive rate at a false-positive rate of {100 * rate:g} %, which is chance"


def _row(about: str, unit: Unit, estimates: Mapping[str, SampleEstimate | Measurement]) -> Row:
    """Return a row with the models that have an estimate."""
    original, unlearned, retrained = (
        Estimate(*estimates[model][:3]) if model in estimates else None for model in MODELS
    )
    return Row(about, unit, estimates["unlearned"].n, original, unlearned, retrained)
