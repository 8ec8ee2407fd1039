"""ε: formula and limits by hand; a planted leak reaches the limit, and no leak gives chance."""

import math

import numpy as np
import pytest

from duck.audits.pool_measures import choose, epsilon, epsilon_per_sample, limit
from duck.audits.scores import Margins
from duck.errors import BadInput
from tests.audits import memorisers
from tests.audits.memorisers import CANDIDATES


def sides(ours: np.ndarray, theirs: np.ndarray) -> tuple[Margins, Margins]:
    names = np.arange(ours.shape[1]).astype(str)
    return Margins(names, ours, np.ones(ours.shape, bool)), Margins(
        names, theirs, np.zeros(theirs.shape, bool)
    )


def test_the_formula_by_hand() -> None:
    # 10 % false alarms, 20 % misses: ln(0.9 / 0.2) = 1.504, ln(0.8 / 0.1) = 2.079.
    assert epsilon(0.1, 0.2, delta=0) == pytest.approx(math.log(8))
    assert epsilon(0.2, 0.1, delta=0) == pytest.approx(math.log(8))
    assert epsilon(0.1, 0.2, delta=0.4) == pytest.approx(math.log(4))
    assert epsilon([0.5, 1.0, 0.0, 0.7], [0.5, 0.0, 1.0, 0.7], delta=1e-5).tolist() == [0, 0, 0, 0]
    assert epsilon(0.0, 0.0) == math.inf


@pytest.mark.parametrize(("models", "most"), [(16, 1.58), (32, 2.32), (64, 3.04), (128, 3.74)])
def test_what_so_many_models_can_show_at_most(models: int, most: float) -> None:
    assert round(limit(models, models), 2) == most
    rate = 1 - 0.05 ** (1 / models)  # Clopper-Pearson's one-sided bound of 0 in n
    assert limit(models, models) == pytest.approx(math.log((1 - 1e-5 - rate) / rate))


def test_complete_separation_reaches_the_limit() -> None:
    ours, theirs = sides(np.linspace(5, 6, 64).reshape(32, 2), np.linspace(0, 1, 64).reshape(32, 2))
    found = epsilon_per_sample(ours, theirs)
    assert found.lower == pytest.approx([limit(16, 16)] * 2)
    assert found.limit == pytest.approx([limit(16, 16)] * 2)
    assert found.counted == 16


@pytest.mark.parametrize("turned", [False, True])
def test_an_interval_finds_what_a_threshold_cannot(turned: bool) -> None:
    # One side in the middle, the other left and right of it.
    middle, around = (
        np.linspace(-1, 1, 64)[:, None],
        np.concatenate([np.linspace(-9, -8, 32), np.linspace(8, 9, 32)])[:, None],
    )
    found = epsilon_per_sample(*(sides(around, middle) if turned else sides(middle, around)))
    assert found.lower == pytest.approx([limit(32, 32)])


def test_of_equally_good_rules_a_threshold_is_chosen() -> None:
    # Above 0: no miss, one false alarm (50). Between 0 and 30: one miss (90), no false alarm.
    rule = choose(np.array([*range(1, 12), 90.0]), np.array([*range(-11, 0), 50.0]))
    assert rule == (0, np.inf, True)


def test_a_planted_leak_is_refuted_and_a_clean_one_not() -> None:
    oracles = memorisers.oracles()
    leaked = epsilon_per_sample(memorisers.kept().at(CANDIDATES), oracles)
    assert leaked.counted == 8
    assert np.mean(leaked.lower > 0) > 0.5
    clean = epsilon_per_sample(memorisers.forgot().at(CANDIDATES), oracles)
    assert np.mean(clean.lower > 0) < 0.1
    assert leaked.lower.mean() > 5 * clean.lower.mean()


def test_rules_are_counted_on_models_that_did_not_choose_them() -> None:
    generator = np.random.default_rng(0)
    found = epsilon_per_sample(
        *sides(generator.normal(size=(32, 400)), generator.normal(size=(32, 400)))
    )
    # Were they counted on the choosing half, nearly all would beat chance.
    assert np.mean(found.lower > 0) < 0.1


def test_the_models_of_a_sample_may_differ_in_number() -> None:
    generator = np.random.default_rng(1)
    ours, theirs = sides(generator.normal(9, 1, (24, 2)), generator.normal(0, 1, (16, 2)))
    ours.members[4:, 1] = False
    found = epsilon_per_sample(ours, theirs)
    assert found.limit == pytest.approx([limit(12, 8), limit(2, 8)])
    assert found.counted == 2


def test_too_few_models() -> None:
    ours, theirs = sides(np.zeros((3, 1)), np.zeros((9, 1)))
    with pytest.raises(BadInput, match=r"4 models .* only 3"):
        epsilon_per_sample(ours, theirs)
