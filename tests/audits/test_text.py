"""Which models a sentence names: retrained models, or those of a pool."""

import pytest

from duck.audits.pool_measures import AMONG_UNLEARNED, EPSILON, EXCESS
from duck.audits.text import describe
from duck.audits.verdict import Grade


@pytest.mark.parametrize(
    ("measure", "names_retrained"),
    [("loss attack", True), *((name, False) for name in (EXCESS, AMONG_UNLEARNED, EPSILON))],
)
def test_attacks_on_a_pool_name_no_retrained_models(measure: str, names_retrained: bool) -> None:
    grade = Grade("yes", measure, 1.5, 1.2, 1.8, 0.05, "")
    sentence = describe("exposed", grade, 6)
    assert "1.50" in sentence
    assert ("retrained models" in sentence) == names_retrained
    assert ("pool" in sentence) == (not names_retrained)
