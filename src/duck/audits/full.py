"""From a pool: attacks that know how models with and without a sample look, and what they say of the method and of this model."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import norm

from duck.audits.attacks.lira import offline_lira
from duck.audits.attacks.rmia import rmia, tune_offset
from duck.audits.attacks.ulira import against_not_requested, against_oracles, with_fits
from duck.audits.epsilon import epsilon_per_sample
from duck.audits.intervals import Estimate, binomial_error
from duck.audits.klom import klom, p95, span_of
from duck.audits.margins import margins
from duck.audits.measurements import Attack, Measure, Value, mean, member_scores, separated_by
from duck.audits.memorisation import memorisation, retained_leakage
from duck.audits.oracle import More
from duck.audits.outputs import Observed, Part, Setting
from duck.audits.roc import RATES, Roc, least_others, roc
from duck.audits.scores import Flags, Floats, Margins, Scored
from duck.audits.verdict import MODELS, Limit, Reading, Row, Unit
from duck.errors import BadInput
from duck.pools.reader import Pool, State
from duck.runtime import seeded
from duck.types import Ids

LEAST = 20
"""Models of a pool, with half as many oracles: five of these are judged by the other five, to see what equal models show."""
DECISIVE = "U-LiRA"
QUANTILE = 0.95
JUDGED = MODELS[:2]
STATES: tuple[State, State, State] = ("before", "after", "oracle")
ABOUT = {
    "game": "tells models that unlearned a sample from models that never saw it; judged against chance, 0.5",
    "among": "the same of half of the oracles against the other half: so few equal models lie below 0.5, down to 0, since each is "
    "judged by fits without it",
    "hits": "members that are told at no more false alarms than",
    "second": "tells models that unlearned a sample from models that never had it and unlearned others; 0.5 is chance",
    "LiRA": "forgotten samples have margins that models without them do not show; against unseen ones",
    "RMIA": "forgotten samples gain more over the average model than unseen ones do",
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


def from_pool(pool: Pool, where: Setting) -> More:
    """What every attack on the pool found: rows of the table, and what U-LiRA says of the method and of the controls."""
    check_size(pool)
    games = {name: roc(scored) for name, scored in _games(pool, where).items()}
    rows = {**_ulira_rows(pool, games), **_sample_rows(pool, where)}
    p = {who: {DECISIVE: _p_value(game.auc)} for who, game in games.items()}
    shown = {who: games[who].curve() for who in JUDGED}
    oracles = len(pool.stack("oracle"))
    said = f"AUC {games['unlearned'].auc.value:.3f} against chance, 0.5, with {len(pool)} models of the method and {oracles} that never saw"
    attacks = _model_attacks(pool, where)
    return More(
        _model_measures(attacks, where),
        rows,
        p,
        {DECISIVE: shown},
        {DECISIVE: f"{said} the samples"},
        attacks,
    )


def _games(pool: Pool, where: Setting) -> dict[str, Scored]:
    """Models that unlearned a sample against models that never saw it; and, in their place, models whose verdict is known.

    Not the masked ones: their margins would give them away here, and what lies below a mask is what that control asks for.
    """
    chosen = pool.roles == "candidate"
    before, after, oracles = (pool.margins(state, "candidate") for state in STATES)
    stand_ins = {
        "unlearned": after,
        "original": before,
        "output noise": _instead(before, _noisy(pool, chosen, where.seed)),
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
    return (logits[chosen].astype(np.float64) for logits in pool.before.iter_logits())


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
        who: with_fits(games[who].auc, against_oracles, models, oracles)
        for who, models in zip(JUDGED, (before, after), strict=True)
    }
    rows = {DECISIVE: _row(ABOUT["game"], "AUC", played)}
    for rate in _resolved(min(games[who].others for who in JUDGED)):
        rows[_hits(DECISIVE, rate)] = _row(
            _about(rate), "%", {who: games[who].tpr_at(rate) for who in JUDGED}
        )
    equal = games["retrained"].auc
    rows["U-LiRA among oracles"] = Row(
        ABOUT["among"], "AUC", equal.n, None, None, Reading(equal.value, None, None)
    )
    second = [
        with_fits(roc(against_not_requested(models)).auc, against_not_requested, models)
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


def _sample_rows(pool: Pool, where: Setting) -> dict[str, Row]:
    """ε, KLoM, memorisation and leakage."""
    before, after, oracles = (pool.margins(state) for state in STATES)
    candidates, retained = pool.ids[pool.roles == "candidate"], pool.ids[pool.roles == "retain"]
    unseen = pool.ids[np.isin(pool.roles, ["test", "holdout"]) & np.isin(pool.labels, where.kept)]
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
    original, unlearned, retrained = (Reading(p95(values), None, None) for values in found.values())
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
        Reading(float(np.quantile(found.lower, QUANTILE)), None, None) for found in (was, now)
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


def _model_measures(attacks: Mapping[str, Attack], where: Setting) -> list[Measure]:
    """AUC and hits of each."""
    others = {"LiRA": len(where.matched), "RMIA": int(np.isin(where.matched, where.test).sum())}
    found = [
        Measure(name, ABOUT[name], "AUC", separated_by(attack)) for name, attack in attacks.items()
    ]
    return found + [
        Measure(_hits(name, rate), _about(rate), "%", _told_at(attack, rate))
        for name, attack in attacks.items()
        for rate in _resolved(others[name])
    ]


def _told_at(attack: Attack, rate: float) -> Callable[[Observed], Value]:
    def own(seen: Observed) -> Value:
        hits = roc(attack(seen)).tpr_at(rate)
        return Value(hits.value, hits.low, hits.high, binomial_error(hits.value, hits.n), hits.n)

    return own


def _model_attacks(pool: Pool, where: Setting) -> dict[str, Attack]:
    """LiRA and RMIA on the audited models themselves; the oracles, which never saw a candidate, are the shadow models."""
    oracles = pool.margins("oracle")
    holdout = pool.ids[pool.roles == "holdout"]
    offset = tune_offset(
        pool.margins("before").at(pool.ids[np.isin(pool.roles, ["candidate", "holdout"])]), holdout
    )

    def target(seen: Observed) -> Scored:
        found = member_scores(seen, where, lambda part: margins(part.logits, part.labels))
        names = np.concatenate(
            [seen.forget.ids[where.members], _known(pool, seen.unseen)[where.matched]]
        )
        watched = np.isin(names, pool.ids)
        return Scored(names[watched], found.scores[watched], found.members[watched])

    def by_rmia(seen: Observed) -> Scored:
        names = _known(pool, seen.unseen)
        at = np.isin(names, holdout)
        population = Scored(
            names[at],
            margins(seen.unseen.logits, seen.unseen.labels)[at],
            np.zeros(int(at.sum()), np.bool_),
        )
        found = target(seen)
        other = ~np.isin(found.ids, holdout)
        return rmia(
            Scored(found.ids[other], found.scores[other], found.members[other]),
            oracles,
            population,
            offset,
        )

    def by_lira(seen: Observed) -> Scored:
        return offline_lira(target(seen), oracles, where.seed)

    # RMIA takes the holdout as its population: too few may be left to be told from.
    return (
        {"LiRA": by_lira, "RMIA": by_rmia}
        if np.isin(where.matched, where.test).sum() >= 2
        else {"LiRA": by_lira}
    )


def _known(pool: Pool, part: Part) -> Ids:
    """The ids under which a pool watches unseen samples: where they are those of training samples too, with a word before."""
    marked: Ids = np.char.add("test:", part.ids)
    return marked if np.isin(marked, pool.ids).any() else part.ids


def _row(about: str, unit: Unit, found: Mapping[str, Estimate]) -> Row:
    """Of the models that there is an estimate of."""
    original, unlearned, retrained = (
        Reading(*found[who][:3]) if who in found else None for who in MODELS
    )
    return Row(about, unit, found["unlearned"].n, original, unlearned, retrained)


def _mean(values: Floats) -> Estimate:
    found = mean(values.astype(np.float64))
    return Estimate(
        found.value, found.value - 1.96 * found.error, found.value + 1.96 * found.error, found.n
    )
