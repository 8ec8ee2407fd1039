"""Rows follow their ids: models that tell their samples in another order give the same attack."""

import numpy as np
import pytest

from duck.audits.attacks.lira import offline_lira
from duck.audits.scores import Margins, Outputs, Scored
from duck.audits.statistics import roc
from duck.errors import BadInput
from tests.audits import memorisers
from tests.audits.memorisers import NAMES

AB = np.array(["a", "b"])


def test_models_and_target_may_tell_their_samples_in_their_own_order() -> None:
    generator = np.random.default_rng(5)
    *trainings, judged = memorisers.halves(18, generator)[:17]
    order = generator.permutation(len(NAMES))
    straight = memorisers.stack(memorisers.row(rows) for rows in trainings)
    shuffled = memorisers.stack(memorisers.row(rows, order) for rows in trainings)
    target = memorisers.row(judged, generator.permutation(len(NAMES)))
    first, second = offline_lira(target, straight), offline_lira(target, shuffled)
    assert (first.ids == target.ids).all()
    assert first.scores == pytest.approx(second.scores)
    # Rows that went to other samples would tell nothing.
    assert roc(second).auc.value > 0.9


def test_columns_are_chosen_by_id() -> None:
    made = Margins(
        np.array(["a", "b", "c"]),
        np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        np.array([[True, False, False]] * 2),
    )
    some = made.at(np.array(["c", "a"]))
    assert some.values.tolist() == [[3, 1], [6, 4]]
    assert some.members.tolist() == [[False, True]] * 2
    assert (made.row(1).scores.tolist(), len(made), made.models(np.array([1])).values.tolist()) == (
        [4, 5, 6],
        2,
        [[4, 5, 6]],
    )
    with pytest.raises(BadInput, match=r"1 of 2 samples .* 3,.* 'd'"):
        made.at(np.array(["a", "d"]))
    turned = Margins(np.array(["b", "a", "c"]), made.values, made.members)
    assert turned.at(np.array(["c", "b"])).values.tolist() == [[3, 1], [6, 4]]
    with pytest.raises(BadInput, match=r"2 of 2 samples .*'s 0"):
        Margins(AB[:0], made.values[:, :0], made.members[:, :0]).at(AB)


def test_outputs_have_probabilities() -> None:
    outputs = Outputs(AB, np.array([[0.0, 1.0], [2.0, 0.0]]), np.array([1, 1]))
    assert outputs.probabilities.sum(1) == pytest.approx([1, 1])
    assert len(outputs) == 2


def test_what_does_not_belong_together() -> None:
    flags, numbers = np.array([True, False]), np.array([1.0, 2.0])
    with pytest.raises(BadInput, match="2 ids, 1 scores and 2 memberships"):
        Scored(AB, numbers[:1], flags)
    with pytest.raises(BadInput, match="got int64 values"):
        Scored(AB, numbers, np.array([0, 1]))
    with pytest.raises(BadInput, match=r"1 of 2 scores .*NaN.* 'b'"):
        Scored(AB, np.array([1.0, np.nan]), flags)
    with pytest.raises(BadInput, match="Lengths differ"):
        Scored(AB, numbers, flags, np.array([0]))
    with pytest.raises(BadInput, match="2 ids, 2 outputs and 1 labels"):
        Outputs(AB, np.zeros((2, 3)), np.array([0]))
    with pytest.raises(BadInput, match=r"1 of 2 outputs .* 'a'"):
        Outputs(AB, np.array([[np.nan, np.nan], [0.0, 1.0]]), np.array([0, 0]))
    with pytest.raises(BadInput, match="a row is a model"):
        Margins(AB, np.zeros((3, 3)), np.zeros((3, 3), bool))
    with pytest.raises(BadInput, match="occurs twice"):
        Margins(np.array(["a", "a"]), np.zeros((3, 2)), np.zeros((3, 2), bool))
    with pytest.raises(BadInput, match=r"1 of 4 margins .* 'b'"):
        Margins(AB, np.array([[0.0, np.nan], [0.0, 0.0]]), np.zeros((2, 2), bool))
