"""Scores against hand-made numbers and an independent library."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss
from torch import Tensor

from duck.errors import BadInput
from duck.metrics import Scores, aus, evaluate, forgot_nothing
from duck.predict import predict
from tests.toys import class_scenario, head_of, samples_scenario, trained_net

unit = st.floats(0, 1)


@pytest.mark.parametrize(
    ("kind", "original", "test", "forget", "expected"),
    [
        ("class", 0.8864, 0.8864, 0.8834, 0.53095),  # the paper's original on CIFAR-10
        ("class", 0.8864, 0.8846, 0.0, 0.9982),  # the paper's DUCK
        ("samples", 0.8854, 0.8854, 0.9949, 0.90131),
        ("samples", 0.8854, 0.8781, 0.8728, 0.98747),
        ("class", 0.5, 0.75, 0.25, 1.0),
    ],
)
def test_aus_by_hand(kind: str, original: float, test: float, forget: float, expected: float) -> None:
    assert aus(kind, original, test, forget) == pytest.approx(expected, abs=2e-4)


@given(unit, unit, unit)
def test_aus_falls_with_what_is_remembered_and_rises_with_what_is_kept(original: float, test: float, forget: float) -> None:
    assert aus("class", original, test, forget) <= aus("class", original, test, 0.0)
    assert aus("class", original, test, forget) <= aus("class", original, 1.0, forget)
    assert aus("samples", original, test, forget) <= aus("samples", original, test, test)


def test_aus_wants_shares_not_percents() -> None:
    with pytest.raises(BadInput, match=r"test must be an accuracy in \[0, 1\], got 88.5"):
        aus("class", 0.9, 88.5, 0.0)


@pytest.mark.parametrize("make", [class_scenario, samples_scenario])
def test_scores_agree_with_scikit_learn(make: object) -> None:
    scenario, model = make(), trained_net()  # type: ignore[operator]
    with torch.no_grad():
        head_of(model).bias[1] += 8.0  # some mistakes, or every accuracy would be 1
    scores = evaluate(model, scenario)
    splits: dict[str, tuple[object, Tensor]] = {
        "forget": (scenario.data.train, scenario.forget),
        "retain": (scenario.data.train, scenario.retain),
        "test": (scenario.data.test, scenario.test),
        "forget_test": (scenario.data.test, scenario.forget_test),
        "retain_test": (scenario.data.test, scenario.retain_test),
    }
    for name, (source, rows) in splits.items():
        if not len(rows):
            assert getattr(scores, name) is None
            continue
        seen = predict(model, source.take(rows))  # type: ignore[attr-defined]
        assert getattr(scores, name) == pytest.approx(accuracy_score(seen.labels, seen.logits.argmax(1)))
        if name == "forget":
            assert scores.forget_loss == pytest.approx(log_loss(seen.labels, seen.logits.double().softmax(1), labels=range(4)), rel=1e-4)
    assert 0.3 < scores.retain < 1


def test_aus_uses_the_originals_accuracy_on_the_same_split() -> None:
    scenario, model = class_scenario(), trained_net()
    original = evaluate(model, scenario)
    masked = trained_net()
    with torch.no_grad():
        head_of(masked).bias[2] = -100.0
    scores = evaluate(masked, scenario, replace(original, retain_test=0.9))
    assert scores.forget_test == 0
    assert scores.retain_test is not None
    assert scores.aus == pytest.approx(1 - (0.9 - scores.retain_test))


def test_without_test_data_there_is_no_aus() -> None:
    scenario = class_scenario()
    blind = replace(scenario, data=replace(scenario.data, test=None))
    scores = evaluate(trained_net(), blind)
    assert (scores.aus, scores.test, scores.forget_test) == (None, None, None)
    assert scores.forget > 0.9


def test_predictions_are_rows_of_ids_and_the_head_maps_embeddings_to_logits() -> None:
    scenario, model = class_scenario(), trained_net()
    subset = scenario.data.train.take(scenario.forget.flip(0))
    seen = predict(model, subset)
    assert list(seen.ids) == subset.ids.tolist()
    torch.testing.assert_close(head_of(model)(seen.embeddings), seen.logits)
    torch.testing.assert_close(seen.logits, model(next(subset.batches(1000)).images))


@pytest.mark.parametrize(
    ("forget", "loss", "nothing"), [(1.0, 0.01, True), (0.99, 0.01, False), (1.0, 0.5, False), (1.0, 0.0099, True), (1.0, 0.010001, True)]
)
def test_forgetting_nothing_is_neither_less_accuracy_nor_more_loss(forget: float, loss: float, nothing: bool) -> None:
    original = Scores(0.5, 1.0, 1.0, 1.0, None, 1.0, 0.01)
    assert forgot_nothing(original, replace(original, forget=forget, forget_loss=loss)) == nothing
    whole = replace(original, forget_test=1.0)
    assert forgot_nothing(whole, replace(whole, forget=forget, forget_loss=loss)) == (forget == 1.0)
