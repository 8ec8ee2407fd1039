"""Scores against hand-made numbers and an independent library."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import percentileofscore
from sklearn.metrics import accuracy_score, log_loss
from torch import Tensor

from duck.errors import BadInput
from duck.metrics import (
    KEPT,
    TOO_MUCH_LOST,
    Scores,
    aus,
    evaluate,
    judge_kept,
    kept_accuracy,
    shows_forgetting,
)
from duck.predict import outcomes, predict
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
def test_aus_by_hand(
    kind: str, original: float, test: float, forget: float, expected: float
) -> None:
    assert aus(kind, original, test, forget) == pytest.approx(expected, abs=2e-4)


@given(unit, unit, unit)
def test_aus_falls_with_remembered_and_rises_with_retained_accuracy(
    original: float, test: float, forget: float
) -> None:
    assert aus("class", original, test, forget) <= aus("class", original, test, 0.0)
    assert aus("class", original, test, forget) <= aus("class", original, 1.0, forget)
    assert aus("samples", original, test, forget) <= aus("samples", original, test, test)


def test_aus_wants_shares_not_percents() -> None:
    with pytest.raises(BadInput, match=r"test must .*\[0, 1\], got 88.5"):
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
        assert getattr(scores, name) == pytest.approx(
            accuracy_score(seen.labels, seen.logits.argmax(1))
        )
        if name == "forget":
            assert scores.forget_loss == pytest.approx(
                log_loss(seen.labels, seen.logits.double().softmax(1), labels=range(4)), rel=1e-4
            )
    assert scores.retain is not None
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
    ("original", "unlearned", "n", "limit", "damaged"),
    [
        (0.925, 0.201, 360, None, True),
        (0.95, 0.899, 100_000, None, True),
        (0.95, 0.901, 100_000, None, False),  # 5 points
        (0.95, 0.88, 100, None, False),  # 3 standard errors of so few are more
        (0.95, 0.75, 100, None, True),
        (1.0, 0.0, 1, None, False),
        (1.0, 0.0, 3, None, True),
        (0.95, 0.90, 100, 0.04, True),
        (0.95, 0.50, 100, 0.5, False),
        (0.5, 0.9, 100, 0.0, False),
    ],
)
def test_a_loss_of_kept_accuracy_beyond_the_limit_is_damage(
    original: float, unlearned: float, n: int, limit: float | None, damaged: bool
) -> None:
    assert kept_accuracy("test", original, unlearned, n, limit).damaged == damaged


def test_the_default_limit_by_hand() -> None:
    # (96 / 102) (6 / 102) + (76 / 102) (26 / 102), over 102.
    assert kept_accuracy("test", 0.95, 0.75, 100).limit == pytest.approx(
        3 * ((96 * 6 + 76 * 26) / 102**3) ** 0.5
    )
    assert kept_accuracy("test", 0.95, 0.75, 10_000).limit == 0.05


def test_a_limit_is_a_share() -> None:
    with pytest.raises(BadInput, match=r"0.05 for 5 points; got 5"):
        kept_accuracy("test", 0.9, 0.8, 100, 5)


@pytest.mark.parametrize("unlearned", [0.9, 0.851, 0.5])
def test_only_damage_is_printed_as_too_much_accuracy_lost(unlearned: float) -> None:
    kept = kept_accuracy("retain_test", 0.863, unlearned, 1000)
    text = str(kept)
    assert (TOO_MUCH_LOST in text, KEPT in text) == (kept.damaged, not kept.damaged)
    assert f"86.3 % to {100 * unlearned:.1f} %" in text


def test_kept_accuracy_is_of_unseen_samples_where_there_are_some() -> None:
    ruined = Scores(0.1, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0)
    whole, some = class_scenario(), samples_scenario()
    blind = replace(some, data=replace(some.data, test=None), test=some.test[:0])
    found = [judge_kept(scenario, ruined, ruined) for scenario in (whole, some)]
    assert [(one.split, one.original, one.n) for one in found if one] == [
        ("retain_test", 0.5, 120),
        ("test", 0.3, 160),
    ]
    unknown = replace(ruined, test=None, forget_test=None, retain_test=None)
    kept = judge_kept(blind, unknown, unknown)
    assert kept is not None
    assert (kept.split, kept.n) == ("retain", 180)
    nothing = replace(unknown, retain=None)
    assert judge_kept(replace(blind, retain=blind.retain[:0]), nothing, nothing) is None


@pytest.mark.parametrize("shift", [0.0, 4.0])
def test_the_rank_of_forget_losses_is_that_among_unseen_samples_of_their_class(
    shift: float,
) -> None:
    scenario, model = samples_scenario(), trained_net()
    assert scenario.data.test is not None
    with torch.no_grad():
        head_of(model).bias[1] += shift
    members = outcomes(model, scenario.data.train.take(scenario.forget))
    others = outcomes(model, scenario.data.test.take(scenario.test))
    labels, unseen = (
        scenario.data.train.labels[scenario.forget],
        scenario.data.test.labels[scenario.test],
    )
    pairs = zip(members.losses.tolist(), labels, strict=True)
    ranks = [
        percentileofscore(others.losses[unseen == label].numpy(), loss, "mean") / 100
        for loss, label in pairs
    ]
    assert evaluate(model, scenario).forget_rank == pytest.approx(sum(ranks) / len(ranks))
    assert evaluate(model, class_scenario()).forget_rank is None


BEFORE = Scores(0.5, 1.0, 1.0, 1.0, None, 1.0, 0.01, 0.2)


@pytest.mark.parametrize(
    ("forget", "loss", "rank", "found"),
    [
        (0.99, 0.01, 0.2, True),
        (1.0, 0.5, 0.2, True),
        (1.0, float("nan"), 0.2, True),
        (1.0, 0.01, 0.5, False),  # nothing changed
        (1.0, 0.010001, 0.5, False),
        (1.0, 0.005, 0.2, False),  # better than before, and than unseen samples
        (1.0, 0.005, None, False),
        (1.0, 0.005, 0.48, None),  # the whole model got better
    ],
)
def test_single_samples_are_remembered_where_they_stand_out_from_unseen_ones(
    forget: float, loss: float, rank: float | None, found: bool | None
) -> None:
    assert (
        shows_forgetting(
            samples_scenario(),
            BEFORE,
            replace(BEFORE, forget=forget, forget_loss=loss, forget_rank=rank),
        )
        is found
    )


def test_few_samples_can_have_low_ranks_by_chance() -> None:
    scenario = samples_scenario()
    one = replace(scenario, forget=scenario.forget[:1])
    after = replace(BEFORE, forget_loss=0.005, forget_rank=0.1)
    assert shows_forgetting(scenario, BEFORE, after) is False
    assert shows_forgetting(one, BEFORE, after) is None


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [(1.0, 1.0, False), (0.9, 1.0, False), (1.0, 0.9, True), (0.0, 0.0, True)],
)
def test_of_whole_classes_the_accuracy_decides(before: float, after: float, found: bool) -> None:
    scores = [
        replace(BEFORE, forget=value, forget_loss=loss)
        for value, loss in ((before, 0.01), (after, 5.0))
    ]
    assert shows_forgetting(class_scenario(), *scores) is found
