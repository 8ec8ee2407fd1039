"""Margins against the plain formula, and where the plain formula fails."""

import math

import numpy as np
import pytest
from scipy.special import logit
from scipy.special import softmax as reference

from duck.audits.scores import BOUND, margins, softmax
from duck.errors import BadInput


def test_by_hand() -> None:
    # log(p / (1 - p)) with p = 4/7, and with p = 1/7.
    found = margins(np.log([[4.0, 2.0, 1.0], [4.0, 2.0, 1.0]]), np.array([0, 2]))
    assert found == pytest.approx([math.log(4 / 3), math.log(1 / 6)], abs=1e-12)


def test_it_is_the_logit_of_the_probability() -> None:
    logits = np.random.default_rng(0).normal(size=(7, 5, 10))
    labels = np.random.default_rng(1).integers(10, size=(7, 5))
    p = np.take_along_axis(reference(logits, -1), labels[..., None], -1)[..., 0]
    assert margins(logits, labels) == pytest.approx(logit(p), abs=1e-10)
    assert softmax(logits) == pytest.approx(reference(logits, -1), abs=1e-14)


def test_confident_models_do_not_saturate() -> None:
    logits = np.array([[1e4, -1e4, 0.0], [1e4, -1e4, 1.0], [-1e4, 1e4, 0.0]], np.float32)
    assert margins(logits, np.array([0, 0, 0])).tolist() == [1e4, 9999.0, -2e4]
    assert margins(logits, np.zeros(3, int)).dtype == np.float64
    assert softmax(logits)[0].tolist() == [1.0, 0.0, 0.0]


def test_float16_logits_are_taken_as_they_are() -> None:
    logits = np.array([[3.0, 1.0, 0.5]], np.float16)
    assert margins(logits, np.array([0])) == pytest.approx(
        3 - math.log(math.e + math.exp(0.5)), abs=1e-12
    )


def test_a_masked_class_has_a_margin_that_is_a_number() -> None:
    masked = np.array([[-np.inf, 1.0, 0.0], [5.0, -np.inf, -np.inf]])
    assert margins(masked, np.array([0, 0])).tolist() == [-BOUND, BOUND]
    assert margins(masked, np.array([1, 1])) == pytest.approx([1.0, -BOUND])


def test_the_callers_array_is_left_alone() -> None:
    logits = np.ones((2, 3))
    margins(logits, np.array([0, 1]))
    assert (logits == 1).all()


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (np.array([[np.nan, 0.0]]), np.array([0]), "not all numbers"),
        (np.array([[np.inf, 0.0]]), np.array([0]), "not all numbers"),
        (np.zeros((2, 3)), np.zeros(3, int), r"need labels of shape \(2,\)"),
        (np.zeros((2, 1)), np.zeros(2, int), "at least two classes"),
        (np.zeros((2, 3)), np.array([0, 3]), r"Labels must lie in 0\.\.2, got 0\.\.3"),
        (np.zeros((2, 3)), np.array([-1, 0]), r"got -1\.\.0"),
    ],
)
def test_what_cannot_be(logits: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        margins(logits, labels)
