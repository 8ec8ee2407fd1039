"""KLoM: histograms by hand, a leak above the floor, clean models on it."""

import math

import numpy as np
import pytest
from scipy.stats import entropy

from duck.audits.pool_measures import divergence, histogram, klom, span_of
from duck.audits.scores import Array, Floats, Margins
from duck.errors import BadInput
from tests.audits import memorisers
from tests.audits.memorisers import CANDIDATES, NEW, SEEN


def histograms(*sides: Floats) -> list[Array]:
    """Over the range of these sides."""
    joined = np.clip(np.concatenate(sides), -100, 100)
    return [histogram(side, (joined.min(0), joined.max(0))) for side in sides]


def test_the_divergence_is_of_the_unlearned_models_from_oracles_by_hand() -> None:
    # One of four unlearned models is where no oracle is: 0.75 ln 0.75 + 0.25 ln (0.25 / 1e-5).
    # The reverse divergence would be 0.288.
    name = np.array(["x"])
    ours, theirs = np.array([[0.0], [0.0], [0.0], [10.0]]), np.zeros((8, 1))
    found = klom(
        Margins(name, ours, np.ones((4, 1), bool)), Margins(name, theirs, np.zeros((8, 1), bool))
    )
    assert found.values == pytest.approx(
        [0.75 * math.log(0.75) + 0.25 * math.log(0.25e5)], abs=1e-2
    )
    assert found.floor == pytest.approx([0], abs=1e-9)


def test_one_span_gives_one_floor_to_models_before_and_after() -> None:
    before, after, oracles = (
        models.at(CANDIDATES)
        for models in (memorisers.kept(), memorisers.forgot(), memorisers.oracles())
    )
    after = Margins(after.ids, after.values, before.members)
    span = span_of(oracles, before, after)
    was, now = (klom(models, oracles, span=span) for models in (before, after))
    assert np.array_equal(was.floor, now.floor)
    assert not np.array_equal(klom(before, oracles).floor, klom(after, oracles).floor)


def test_the_span_is_that_of_the_models_that_count() -> None:
    values, members = (
        np.array([[0.0, 0.0], [3.0, 3.0], [500.0, 90.0]]),
        np.array([[True, True], [True, True], [True, False]]),
    )
    names = np.array(["x", "y"])
    oracles = Margins(
        names, values[:2] - 1, np.array([[True, True], [False, False]])
    )  # all of these count
    low, high = span_of(oracles, Margins(names, values, members))
    assert (low.tolist(), high.tolist()) == ([-1, -1], [100, 3])


def test_by_hand() -> None:
    # 20 bins over 0..10: ours three times in the first and once in the last, theirs twice in each.
    found = divergence(
        *histograms(
            np.array([[0.0], [0.1], [0.2], [10.0]]), np.array([[0.0], [0.3], [9.9], [10.0]])
        )
    )
    total = 1 + 18e-5
    p, q = np.array([0.75, 0.25, *[1e-5] * 18]) / total, np.array([0.5, 0.5, *[1e-5] * 18]) / total
    assert found == pytest.approx([entropy(p, q)])
    assert found == pytest.approx([0.75 * math.log(1.5) + 0.25 * math.log(0.5)], abs=1e-3)


def test_it_is_clipped_and_floored() -> None:
    far = divergence(*histograms(np.array([[500.0], [300.0]]), np.array([[-500.0], [-101.0]])))
    assert far == pytest.approx(
        divergence(*histograms(np.array([[100.0], [100.0]]), np.array([[-100.0], [-100.0]])))
    )
    assert far == pytest.approx([math.log(1e5)], rel=1e-3)
    # A third side widens the bins: what was apart falls together.
    near = [np.array([[0.0], [0.0]]), np.array([[1.0], [1.0]])]
    assert divergence(*histograms(*near))[0] > 11
    assert divergence(*histograms(*near, np.array([[90.0]]))[:2]) == pytest.approx([0])
    assert divergence(*histograms(np.ones((3, 2)), np.ones((3, 2)))) == pytest.approx([0, 0])


def test_a_leak_lies_above_the_floor_and_clean_models_on_it() -> None:
    oracles = memorisers.oracles()
    leaked = klom(memorisers.kept().at(CANDIDATES), oracles)
    clean = klom(memorisers.forgot().at(CANDIDATES), oracles)
    assert leaked.values.mean() > 2 * leaked.floor.mean()
    assert np.quantile(leaked.values, 0.95) > np.quantile(leaked.floor, 0.95)
    assert clean.values.mean() == pytest.approx(clean.floor.mean(), rel=0.1)
    assert (len(clean.values), clean.models) == (SEEN // 2, 16)


def test_of_a_shared_out_sample_only_models_that_had_it_count() -> None:
    generator = np.random.default_rng(0)
    values, members = generator.normal(size=(16, 3)), np.zeros((16, 3), bool)
    members[:8, 0], members[:, 1] = True, True
    values[8:, 0] += 50  # never had it to forget
    names = np.array(["forget", "retain", "test"])
    found = klom(
        Margins(names, values, members),
        Margins(names, generator.normal(size=(16, 3)), members & False),
    )
    assert found.models == 8
    assert found.values == pytest.approx(found.floor, abs=1.5)
    values[:8, 1:] += 50  # of the others all count: half of these models are far off
    moved = klom(
        Margins(names, values, members),
        Margins(names, generator.normal(size=(16, 3)), members & False),
    )
    assert (moved.values[1:] > moved.floor[1:]).all()


def test_samples_that_stay_and_unseen_ones() -> None:
    some = np.concatenate([memorisers.KNOWN[-20:], NEW[:20]])
    found = klom(memorisers.kept().at(some), memorisers.oracles())
    assert found.values.shape == (40,)
    assert np.isfinite(found.values).all()


def test_too_few_oracles() -> None:
    with pytest.raises(BadInput, match=r"8 oracles and 4 .* 6 and 3"):
        klom(memorisers.kept().at(CANDIDATES), memorisers.oracles().models(np.arange(6)))
