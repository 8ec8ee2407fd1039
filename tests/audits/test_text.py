"""Which models a sentence names: retrained models, or those of a pool."""

import pytest

from duck.audits.pool_measures import AMONG_UNLEARNED, EPSILON_EXCESS, EXCESS
from duck.audits.text import describe, describe_power
from duck.audits.verdict import Grade, Limits, Power


@pytest.mark.parametrize(
    ("measure", "names_retrained"),
    [("loss attack", True), *((name, False) for name in (EXCESS, AMONG_UNLEARNED, EPSILON_EXCESS))],
)
def test_attacks_on_a_pool_name_no_retrained_models(measure: str, names_retrained: bool) -> None:
    grade = Grade("yes", measure, 1.5, 1.2, 1.8, 0.05, "")
    sentence = describe("exposed", grade, 6, Limits())
    assert "1.50" in sentence
    assert ("retrained models" in sentence) == names_retrained
    assert ("pool" in sentence) == (not names_retrained)


@pytest.mark.parametrize(
    ("limit", "wanted", "is_named"), [(0.24, None, True), (0.05, None, False), (0.3, 0.3, False)]
)
def test_a_limit_that_is_larger_than_asked_for_is_named(
    limit: float, wanted: float | None, is_named: bool
) -> None:
    """A "no" below a limit that nobody asked for is no equivalence within the default limit."""
    grade = Grade("no", "loss attack", 0.01, -0.1, 0.12, limit, "")
    sentence = describe("exposed", grade, 6, Limits(max_advantage=wanted))
    assert f"limit {limit:g}" in sentence
    assert ("does not resolve 0.05" in sentence) is is_named


@pytest.mark.parametrize(
    ("power", "words"),
    [
        (Power(None), "cannot be measured"),
        (Power(0.2), "from 0.20 on."),
        (Power(0.2, 0.15, False, {"0.1": 0.1}), "keeps 15 % of"),
        (Power(0.2, 0.1, True, {"0.1": 0.7}), "keeps 10 % or less of"),
        (Power(1.2, None, False, {"0.1": 0.1}), "which no share"),
    ],
)
def test_power_is_stated_as_far_as_it_was_measured(power: Power, words: str) -> None:
    assert words in describe_power(power)
