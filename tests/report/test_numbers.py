"""Intervals by hand and by other means."""

from dataclasses import astuple

import pytest
from scipy.stats import binomtest

from duck.metrics import aus
from duck.report.results import accuracy_with_interval, aus_with_range, mean_and_spread
from duck.types import Estimate


@pytest.mark.parametrize(("right", "n"), [(0, 16), (16, 16), (1, 40), (37, 40), (7800, 8000)])
def test_an_accuracy_has_the_exact_binomial_interval(right: int, n: int) -> None:
    known = binomtest(right, n).proportion_ci(method="exact")
    found = accuracy_with_interval(right / n, n)
    assert astuple(found) == pytest.approx((right / n, known.low, known.high))


def test_what_is_not_there_has_no_interval() -> None:
    assert accuracy_with_interval(0.5, None) == Estimate(0.5)
    assert aus_with_range("class", None, 0.9, None, None) is None
    assert aus_with_range("class", 0.8, 0.9, Estimate(0.8), Estimate(0.1)) == Estimate(0.8)


def test_the_range_of_aus_for_a_class_is_that_of_the_ends() -> None:
    # (1 - (0.9 - 0.85)) / 1.2 and (1 - (0.9 - 0.95)) / 1
    found = aus_with_range(
        "class",
        aus("class", 0.9, 0.9, 0.1),
        0.9,
        Estimate(0.9, 0.85, 0.95),
        Estimate(0.1, 0.0, 0.2),
    )
    assert found is not None
    assert astuple(found) == pytest.approx((1 / 1.1, 0.95 / 1.2, 1.05))


def test_where_samples_go_the_best_aus_is_where_both_accuracies_meet() -> None:
    # The intervals share 0.88 to 0.92. The best case is an accuracy of 0.92 on both.
    found = aus_with_range(
        "samples",
        aus("samples", 0.9, 0.9, 0.95),
        0.9,
        Estimate(0.9, 0.85, 0.92),
        Estimate(0.95, 0.88, 0.99),
    )
    assert found is not None
    assert found.high == pytest.approx(1.02)
    assert found.low == pytest.approx(0.95 / 1.14)


def test_mean_and_spread() -> None:
    assert mean_and_spread([2.0]) == Estimate(2.0)
    assert astuple(mean_and_spread([1.0, 3.0])) == pytest.approx((2.0, 2 - 2**0.5, 2 + 2**0.5))
