"""Bounds against scipy and against numbers worked out by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from duck.audits.statistics import (
    clopper_pearson,
    holm,
    mean_interval,
    prediction_interval,
    upper_rate,
)
from duck.errors import BadInput


@pytest.mark.parametrize(("count", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (3, 1000)])
def test_clopper_pearson_is_scipys(count: int, n: int) -> None:
    exact = stats.binomtest(count, n).proportion_ci(0.95, "exact")
    assert clopper_pearson(count, n) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_none_and_all_by_hand() -> None:
    assert upper_rate(0, 16) == pytest.approx(1 - 0.05 ** (1 / 16))
    assert upper_rate([16, 15], 16) == pytest.approx([1, 0.95 ** (1 / 16)])
    assert clopper_pearson(0, 5)[0] == 0
    assert clopper_pearson(5, 5) == pytest.approx((0.025**0.2, 1))


@pytest.mark.parametrize(("count", "n"), [(-1, 5), (6, 5), (0, 0)])
def test_a_rate_that_cannot_be(count: int, n: int) -> None:
    with pytest.raises(BadInput, match="cannot be"):
        clopper_pearson(count, n)


def test_the_mean_of_few() -> None:
    found = mean_interval(np.array([1.0, 2.0, 3.0]))
    low, high = stats.t.interval(0.95, 2, 2.0, 1 / math.sqrt(3))
    assert found == pytest.approx((2.0, low, high, 3))


def test_a_new_model_by_hand() -> None:
    # t(4) at 97.5 % is 2.7764; s = 0.01, n = 5.
    values = [0.90 + 0.01 * math.sqrt(2) * step for step in (-1, 0, 0, 0, 1)]
    band = prediction_interval(values)
    assert (band.mean, band.high - band.mean) == pytest.approx(
        (0.90, 2.7764 * 0.01 * math.sqrt(1.2)), rel=1e-4
    )
    assert band.mean - band.low == pytest.approx(band.high - band.mean)
    assert band.p_value(band.high) == pytest.approx(0.05)
    assert band.p_value(band.low) == pytest.approx(0.05)
    assert band.p_value(0.90) == pytest.approx(1)
    assert band.p_value(band.high, "greater") == pytest.approx(0.025)
    assert band.p_value(band.low, "greater") == pytest.approx(0.975)
    pairs = prediction_interval(values, compared="pairs")
    assert pairs.spread == pytest.approx(band.spread * 4 / 3)
    assert prediction_interval(values, least_spread=1.0).spread == pytest.approx(math.sqrt(1.2))


def test_a_new_model_falls_outside_one_time_in_twenty() -> None:
    draws = np.random.default_rng(0).normal(size=(4000, 6))
    bands = [prediction_interval(row[:5].tolist()) for row in draws]
    outside = np.mean(
        [not band.low <= new <= band.high for band, new in zip(bands, draws[:, 5], strict=True)]
    )
    assert clopper_pearson(200, 4000, 0.999)[0] < outside < clopper_pearson(200, 4000, 0.999)[1]


def test_distances_that_share_pairs_have_their_level() -> None:
    """A model's distance to others is its own part plus theirs, so that distances share pairs."""
    parts = np.random.default_rng(0).normal(size=(4000, 7))
    outside = 0
    for *references, new in parts:
        total = sum(references)
        values = [part + (total - part) / 5 for part in references]
        band = prediction_interval(values, compared="pairs")
        shift = float(np.mean(values)) - 2 * total / 6
        outside += not band.low <= new + total / 6 + shift <= band.high
    assert clopper_pearson(200, 4000, 0.999)[0] < outside / 4000
    assert outside / 4000 < clopper_pearson(200, 4000, 0.999)[1]


def test_values_compared_with_a_group_have_their_level() -> None:
    """A value is a model's own part minus the mean of the others', over the noise of both."""
    parts = np.random.default_rng(0).normal(size=(4000, 7))
    outside = 0
    for *references, new in parts:
        total = sum(references)
        values = [(part - (total - part) / 5) / math.sqrt(1 + 1 / 5) for part in references]
        band = prediction_interval(values, compared="group")
        outside += not band.low <= (new - total / 6) / math.sqrt(1 + 1 / 6) <= band.high
    low, high = clopper_pearson(200, 4000, 0.999)
    assert low < outside / 4000 < high


def test_models_that_agree_exactly() -> None:
    band = prediction_interval([0.5, 0.5])
    assert (band.p_value(0.5), band.p_value(0.5001), band.low, band.high) == (1, 0, 0.5, 0.5)


def test_values_that_are_not_numbers() -> None:
    with pytest.raises(BadInput, match="finite"):
        prediction_interval([0.5, math.nan])


def test_holm_by_hand() -> None:
    found = holm({"a": 0.04, "b": 0.01, "c": 0.03, "d": 0.5})
    assert found == pytest.approx({"a": 0.09, "b": 0.04, "c": 0.09, "d": 0.5})
    assert list(found) == ["a", "b", "c", "d"]
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1, "b": 1}
    assert holm({}) == {}
