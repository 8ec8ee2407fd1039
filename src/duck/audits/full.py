"""From a pool: attacks that know how models with and without a sample look, and what they say of the method and of this model."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import norm

from duck.audits.attacks.base import ModelAttack, model_attacks
from duck.audits.attacks.ulira import (
    ULiraAttack,
    add_fit_error,
    against_not_requested,
    against_oracles,
)
from duck.audits.epsilon import epsilon_per_sample
from duck.audits.intervals import Estimate, binomial_error
from duck.audits.klom import klom, p95, span_of
from duck.audits.margins import margins
from duck.audits.measurements import Measure, Measurement, ScoringFunction, auc_of, mean
from duck.audits.memorisation import memorisation, retained_leakage
from duck.audits.oracle import More
from duck.audits.outputs import ModelOutputs, Setting
from duck.audits.roc import RATES, Roc, least_others, roc
from duck.audits.scores import Flags, Floats, Margins, Scored
from duck.audits.verdict import MODELS, Interval, Limit, Row, Unit
from duck.errors import BadInput
from duck.pools.reader import Pool, State
from duck.runtime import seeded

LEAST = 20
"""Models of a pool, with half as many oracles: five of these are judged by the other five, to see what equal models show."""
DECISIVE = ULiraAttack.title
QUANTILE = 0.95
JUDGED = MODELS[:2]
STATES: tuple[State, State, State] = ("before", "after", "oracle")
ABOUT = {
    "among": "the same of half of the oracles against the other half: so few equal models lie below 0.5, down to 0, since each is "
    "judged by fits without it",
    "hits": "members that are told at no more false alarms than",
    "second": "tells models that unlearned a sample from models that never had it and unlearned others; 0.5 is chance",
    "epsilon": "95th percentile over samples of the 95 % lower bound of ε",
    "klom": "divergence of margins from oracles' on",
    "memorisation": "mean confidence in the right class of models that were trained on the sample minus that of the pool's others, which "
    "were trained on other samples in its place; oracles are left out",
    "leakage": "tells retained from unseen samples by their margin, before and after unlearning; should not rise",
}


def check_size(pool: Pool) -> None:
    """An error where the pool is too small for the full tier."""
    oracles = len(pool.oracle) if pool.oracle else 0
    if len(pool) < LEAST or oracles < LEAST // 2:
        raise BadInput(
            f"The pool in {pool.files.folder} has {len(pool)} models and {oracles} oracles: the full tier needs at least {LEAST} and "
            f"{LEAST // 2}. The same `duck pool` command with more --models adds to it."
        )


def from_pool(pool: Pool, setting: Setting) -> More:
    """What every attack on the pool found: rows of the table, and what U-LiRA says of the method and of the controls."""
    check_size(pool)
    games = {name: roc(scored) for name, scored in _games(pool, setting).items()}
    rows = {**_ulira_rows(pool, games), **_sample_rows(pool, setting)}
    p = {who: {DECISIVE: _p_value(game.auc)} for who, game in games.items()}
    shown = {who: games[who].curve() for who in JUDGED}
    oracles = len(pool.stack("oracle"))
    said = f"AUC {games['unlearned'].auc.value:.3f} against chance, 0.5, with {len(pool)} models of the method and {oracles} that never saw"
    attacks = model_attacks(setting, "full", pool=pool)
    return More(
        _model_measures(attacks, setting),
        rows,
        p,
        {DECISIVE: shown},
        {DECISIVE: f"{said} the samples"},
        attacks,
    )


def _games(pool: Pool, setting: Setting) -> dict[str, Scored]:
    """Models that unlearned a sample against models that never saw it; and, in their place, models whose verdict is known.

    Not the masked ones: their margins would give them away here, and what lies below a mask is what that control asks for.
    """
    chosen = pool.roles == "candidate"
    before, after, oracles = (pool.margins(state, "candidate") for state in STATES)
    stand_ins = {
        "unlearned": after,
        "original": before,
        "output noise": _instead(before, _noisy(pool, chosen, setting.seed)),
    }
    half = len(oracles) // 2
    first, second = oracles.models(np.arange(half)), oracles.models(np.arange(half, len(oracles)))
    retrained = against_oracles(
        Margins(first.ids, first.values, np.ones_like(first.members)), second
    )
    return {
        **{who: against_oracles(models, oracles) for who, models in stand_ins.items()},
        "retrained": retrained,
    }


def _noisy(pool: Pool, chosen: Flags, seed: int) -> Floats:
    """Margins under noise as wide as the logits spread. One model at a time: the logits of all would fill the memory."""
    sums = np.array(
        [[part.size, part.sum(), np.square(part).sum()] for part in _each(pool, chosen)]
    ).sum(0)
    width = float(np.sqrt(sums[2] / sums[0] - (sums[1] / sums[0]) ** 2))
    generator = seeded(seed, "audit", "pool noise")

    def blurred(part: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return (
            part + width * torch.randn(part.shape, generator=generator, dtype=torch.float64).numpy()
        )

    return np.stack([margins(blurred(part), pool.labels[chosen]) for part in _each(pool, chosen)])


def _each(pool: Pool, chosen: Flags) -> Iterator[npt.NDArray[np.float64]]:
    return (logits[chosen].astype(np.float64) for logits in pool.before.each())


def _instead(models: Margins, values: Floats) -> Margins:
    return Margins(models.ids, values, models.members)


def _p_value(auc: Estimate) -> float:
    """One-sided: an attack that does worse than chance tells nothing apart. The fits are taken as given: equal models lie a little below
    0.5 for having each been left out of its own, and with DeLong's error the test is then at its level."""
    error = (auc.value - auc.low) / float(norm.ppf(0.975))
    return float(norm.sf((auc.value - 0.5) / max(error, 1e-9)))


def _ulira_rows(pool: Pool, games: Mapping[str, Roc]) -> dict[str, Row]:
    before, after, oracles = (pool.margins(state, "candidate") for state in STATES)
    played = {
        who: add_fit_error(games[who].auc, against_oracles, models, oracles)
        for who, models in zip(JUDGED, (before, after), strict=True)
    }
    rows = {DECISIVE: _row(ULiraAttack.direction, "AUC", played)}
    for rate in _resolved(min(games[who].others for who in JUDGED)):
        rows[_hits(DECISIVE, rate)] = _row(
            _about(rate), "%", {who: games[who].tpr_at(rate) for who in JUDGED}
        )
    equal = games["retrained"].auc
    rows["U-LiRA among oracles"] = Row(
        ABOUT["among"], "AUC", equal.n, None, None, Interval(equal.value, None, None)
    )
    second = [
        add_fit_error(roc(against_not_requested(models)).auc, against_not_requested, models)
        for models in (before, after)
    ]
    return {
        **rows,
        "U-LiRA among unlearned": _row(
            ABOUT["second"], "AUC", dict(zip(JUDGED, second, strict=True))
        ),
    }


def _resolved(others: int) -> list[float]:
    """Rates of false alarms that so many non-members can show."""
    return [rate for rate in RATES if others >= least_others(rate)]


def _hits(attack: str, rate: float) -> str:
    return f"{attack} hits" if rate == RATES[0] else f"{attack} hits {100 * rate:g} %"


def _about(rate: float) -> str:
    return f"{ABOUT['hits']} {100 * rate:g} %, which is chance"


def _sample_rows(pool: Pool, setting: Setting) -> dict[str, Row]:
    """ε, KLoM, memorisation and leakage."""
    before, after, oracles = (pool.margins(state) for state in STATES)
    candidates, retained = pool.ids[pool.roles == "candidate"], pool.ids[pool.roles == "retain"]
    unseen = pool.ids[np.isin(pool.roles, ["test", "holdout"]) & np.isin(pool.labels, setting.kept)]
    rows = {"ε": _epsilon(before.at(candidates), after.at(candidates), oracles)}
    for name, ids in (("forget", candidates), ("retain", retained), ("test", unseen)):
        if len(ids):
            rows |= _klom(name, before.at(ids), after.at(ids), oracles.at(ids))
    kept = [_mean(memorisation(models.at(candidates)).values) for models in (before, after)]
    rows["memorisation"] = _row(
        ABOUT["memorisation"], "score", {"original": kept[0], "unlearned": kept[1]}
    )
    if len(retained) and len(unseen):
        leaked = retained_leakage(before, after, retained, unseen)
        rows["leakage retained"] = _row(
            ABOUT["leakage"], "AUC", {"original": leaked.before, "unlearned": leaked.after}
        )
    return rows


def _klom(name: str, before: Margins, after: Margins, oracles: Margins) -> dict[str, Row]:
    """Mean and 95th percentile; the same bins for all, so that one floor serves both models."""
    was, now = (
        klom(models, oracles, span=span_of(oracles, before, after)) for models in (before, after)
    )
    about = f"{ABOUT['klom']} {name} samples, {now.models} models a side; retrained: oracles among themselves"
    found = {"original": was.values, "unlearned": now.values, "retrained": now.floor}
    original, unlearned, retrained = (
        Interval(p95(values), None, None) for values in found.values()
    )
    return {
        f"KLoM {name}": _row(
            f"mean {about}", "nats", {who: _mean(values) for who, values in found.items()}
        ),
        f"KLoM {name} p95": Row(
            f"95th percentile over samples of the {about}",
            "nats",
            len(now.ids),
            original,
            unlearned,
            retrained,
        ),
    }


def _epsilon(before: Margins, after: Margins, oracles: Margins) -> Row:
    was, now = (epsilon_per_sample(models, oracles) for models in (before, after))
    limit = float(np.quantile(now.limit, QUANTILE))
    why = f"{now.counted} models a side cannot show more than {limit:.3f}"
    readings = [
        Interval(float(np.quantile(found.lower, QUANTILE)), None, None) for found in (was, now)
    ]
    return Row(
        f"{ABOUT['epsilon']}; {why}",
        "score",
        len(after.ids),
        readings[0],
        readings[1],
        None,
        limit=Limit(limit, why),
    )


def _model_measures(attacks: Mapping[str, ModelAttack], setting: Setting) -> list[Measure]:
    """Return the AUC of each attack, then its TPR at each rate that its non-members resolve."""
    measures = [
        Measure(name, attack.direction, "AUC", auc_of(attack), primary=attack.decisive)
        for name, attack in attacks.items()
    ]
    for name, attack in attacks.items():
        rates = _resolved(attack.count_non_members(setting))
        measures += [
            Measure(_hits(name, rate), _about(rate), "%", _told_at(attack, rate)) for rate in rates
        ]
    return measures


def _told_at(attack: ScoringFunction, rate: float) -> Callable[[ModelOutputs], Measurement]:
    def own(seen: ModelOutputs) -> Measurement:
        hits = roc(attack(seen)).tpr_at(rate)
        return Measurement(
            hits.value, hits.low, hits.high, binomial_error(hits.value, hits.n), hits.n
        )

    return own


def _row(about: str, unit: Unit, found: Mapping[str, Estimate]) -> Row:
    """Of the models that there is an estimate of."""
    original, unlearned, retrained = (
        Interval(*found[who][:3]) if who in found else None for who in MODELS
    )
    return Row(about, unit, found["unlearned"].n, original, unlearned, retrained)


def _mean(values: Floats) -> Estimate:
    found = mean(values.astype(np.float64))
    return Estimate(
        found.value, found.value - 1.96 * found.error, found.value + 1.96 * found.error, found.n
    )
