"""RMIA by hand and against the plain formula; it finds a planted leak and nothing else."""

import numpy as np
import pytest
from scipy.special import expit, logit

from duck.audits.attacks.rmia import OFFSETS, rmia, tune_offset
from duck.audits.scores import Margins, Scored
from duck.audits.statistics import roc
from duck.errors import BadInput
from duck.types import Ids
from tests.audits import memorisers
from tests.audits.attacks.test_lira import shuffled, target
from tests.audits.memorisers import KNOWN, NEW

POPULATION, OTHERS = NEW[:200], NEW[200:]


def part(scored: Scored, ids: Ids) -> Scored:
    rows = np.isin(scored.ids, ids)
    return Scored(scored.ids[rows], scored.scores[rows], scored.members[rows])


def attacked(a: float = 0.5) -> Scored:
    judged = target()
    return rmia(
        part(judged, np.concatenate([KNOWN, OTHERS])),
        memorisers.shadows(),
        part(judged, POPULATION),
        a,
    )


def test_by_hand() -> None:
    # a = 0.5, mean p_out(x) = 0.2: p(x) = 0.4, ratio 0.8 / 0.4 = 2. Of the population: 1, 2 and 3.
    names = np.array(["x", "u", "v", "w"])
    models = Margins(
        names,
        logit([[0.1, 0.2, 0.2, 0.2], [0.3, 0.2, 0.2, 0.2], [0.9, 0.2, 0.2, 0.2]]),
        np.zeros((3, 4), bool),
    )
    models.members[2, 0] = True
    population = Scored(names[1:], logit([0.4, 0.79999, 0.99]), np.zeros(3, bool))
    judged = Scored(names[:1], logit([0.8]), np.array([True]))
    assert rmia(judged, models, population, 0.5).scores == pytest.approx([2 / 3])
    alike = Margins(
        names[:2], np.zeros((1, 2)), np.zeros((1, 2), bool)
    )  # "at least" as likely: equal ones count
    both = [Scored(names[one : one + 1], np.array([1.0]), np.array([True])) for one in (0, 1)]
    assert rmia(both[0], alike, both[1], 0.5).scores == [1]


@pytest.mark.parametrize("a", [0.0, 0.3, 1.0])
def test_it_is_the_plain_formula(a: float) -> None:
    judged, shadows = target(), memorisers.shadows()
    out = np.where(shadows.members, np.nan, expit(shadows.values.astype(np.float64)))
    prior = 0.5 * ((1 + a) * np.nanmean(out, axis=0) + 1 - a)
    ratio = expit(judged.scores) / prior
    unseen = ratio[np.isin(judged.ids, POPULATION)]
    rows = np.isin(judged.ids, np.concatenate([KNOWN, OTHERS]))
    expected = [(one / unseen >= 1).mean() for one in ratio[rows]]
    assert attacked(a).scores == pytest.approx(expected, abs=1e-9)


def test_confident_models_are_still_ranked() -> None:
    names = np.array(["x", "y", "u"])
    models = Margins(names, np.full((4, 3), -900.0), np.zeros((4, 3), bool))
    judged = Scored(names[:2], np.array([-800.0, -850.0]), np.array([True, True]))
    assert rmia(
        judged, models, Scored(names[2:], np.array([-820.0]), np.array([False])), 1.0
    ).scores.tolist() == [1, 0]


def test_a_planted_leak_is_caught() -> None:
    found = roc(attacked())
    assert found.tpr_at(0.01).value >= 10 * 0.01
    assert found.auc.low > 0.8


def test_shuffled_membership_and_unseen_samples_show_nothing() -> None:
    found = attacked()
    unseen = ~found.members
    among = Scored(found.ids[unseen], found.scores[unseen], np.isin(found.ids[unseen], KNOWN))
    for scored in (shuffled(found), among):
        curve = roc(scored)
        assert curve.auc.low < 0.5 < curve.auc.high


def test_the_offset_is_the_one_that_serves_best() -> None:
    shadows = memorisers.shadows()
    best = tune_offset(shadows, POPULATION)
    judged, rest = shadows.row(0), shadows.models(np.arange(1, len(shadows)))
    areas = {
        a: roc(
            rmia(part(judged, np.concatenate([KNOWN, OTHERS])), rest, part(judged, POPULATION), a)
        ).auc.value
        for a in OFFSETS
    }
    assert areas[best] == max(areas.values())
    assert min(areas.values()) < areas[best]
    with pytest.raises(
        BadInput, match=r"none in 1\."
    ):  # of two that share the samples out, the judged one is no reference
        tune_offset(shadows.models(np.arange(2)), POPULATION)


def test_bad_input() -> None:
    judged, shadows = target(), memorisers.shadows()
    nobody = part(judged, np.array(["nobody"]))
    with pytest.raises(BadInput, match="the holdout is empty"):
        rmia(judged, shadows, nobody, 0.5)
    with pytest.raises(BadInput, match=r"1 reference model .* none in 1"):
        rmia(judged, shadows.models(np.array([0])), judged, 0.5)
