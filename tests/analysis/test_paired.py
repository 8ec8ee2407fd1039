"""PairedTest tests against numbers counted by hand."""

import pytest

from duck.analysis.paired import paired_test


def test_p_as_counted_over_all_signs() -> None:
    # Of the 32 ways to sign the ranks 1..5, ten have a negative sum of at most 5: p = 2 * 10 / 32.
    found = paired_test([1, 2, 3, 4, 0], [0, 0, 0, 0, 5])
    assert found.p == pytest.approx(20 / 32)
    assert (found.n, found.least_p) == (5, 2 / 32)
    assert found.difference == 2


def test_all_on_one_side_gives_the_least_p_there_is() -> None:
    found = paired_test([3.0, 5.0, 9.0, 2.0], [1.0, 2.0, 3.0, 1.5])
    assert found.p == found.least_p == 2 / 16


@pytest.mark.parametrize("n", [2, 5, 8, 14, 60])
def test_nothing_gives_less_than_the_least_p(n: int) -> None:
    ties = paired_test([1.0] * n, [0.0] * n)
    assert ties.least_p == ties.p < 1.3 * 0.5 ** min(n - 1, 10)
    values = [float(1 + index) for index in range(n)]
    one_side, mixed = (
        paired_test(values, [0.0] * n),
        paired_test([-values[0], *values[1:]], [0.0] * n),
    )
    assert one_side.least_p == mixed.least_p == one_side.p < mixed.p
    # Beyond 50 pairs p is that of the normal curve, whose tail is not as thin as that of the signs.
    assert (
        one_side.least_p == pytest.approx(2.0 ** (1 - n))
        if n <= 50
        else one_side.least_p > 2.0 ** (1 - n)
    )


def test_one_pair_proves_nothing() -> None:
    assert paired_test([1.0], [0.0]).p == 1


def test_pairs_that_do_not_differ_do_not_count() -> None:
    assert paired_test([1.0, 7.0, 2.0], [0.0, 7.0, 0.0]).n == 2
    same = paired_test([7.0, 8.0], [7.0, 8.0])
    assert (same.p, same.n, same.least_p, same.difference) == (1.0, 0, 1.0, 0.0)
