"""Requests without any retain sample: all training samples that are given are to be forgotten."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import duck
from duck.errors import BadInput
from duck.methods._stopping import RankStopRule, make_stop_rule
from duck.methods.automatic import choose_method
from duck.methods.base import METHODS, retain_free, retained_classes
from duck.methods.by_cost import methods_by_cost
from duck.predict import outcomes
from duck.types import Data, Recipe
from tests.toys import RECIPE, TOYS, class_scenario, samples_scenario, toy_data, trained_net

FORGETTING = {
    kind: [name for name, cls in METHODS.items() if kind in cls.scenarios and name != "original"]
    for kind in ("class", "samples")
}


def only(rows: Tensor, data: Data | None = None) -> Data:
    """Data whose training samples are these rows alone."""
    data = data or toy_data()
    return replace(data, train=data.train.take(rows))


def class_c() -> Data:
    return only((toy_data().train.labels == 2).nonzero().flatten())


def some(count: int = 60) -> Data:
    return only(torch.arange(count))


def forget(data: Data, request: Any, method: Any, **options: Any) -> duck.Result:
    return duck.forget(trained_net(), data, request, method=method, **options)


def loss(model: nn.Module, data: Data) -> float:
    return float(outcomes(model, data.train).losses.mean())


def test_the_methods_that_need_none() -> None:
    classes = {"boundary-expand", "boundary-shrink", "delete", "neg-grad", "random-label"}
    assert set(retain_free("class")) == classes
    assert set(retain_free("samples")) == {"amun", "neg-grad", "random-label"}


@pytest.mark.parametrize("name", retain_free("class"))
@pytest.mark.parametrize("has_test", [True, False])
def test_a_class_is_forgotten(name: str, has_test: bool) -> None:
    data = class_c() if has_test else replace(class_c(), test=None, holdout=torch.arange(0))
    result = forget(data, duck.ForgetClasses([2]), TOYS[name].method("class"))
    assert result.scenario.kind == "class"
    assert result.scores.forget <= TOYS[name].forget_at_most
    assert result.scores.retain is None
    assert result.outcome.processed == len(data.train)
    if has_test:
        # The test samples of all classes count, although only one has training samples.
        assert result.kept_accuracy is not None
        assert result.kept_accuracy.n == 120
        assert result.kept_accuracy.unlearned > 0.85
    else:
        assert result.kept_accuracy is None
        assert result.outcome.status == "done"


@pytest.mark.parametrize("name", retain_free("samples"))
def test_samples_are_forgotten_and_stay_in_their_classes(name: str) -> None:
    data = some()
    result = forget(data, range(60), TOYS[name].method("samples"))
    assert result.scenario.kind == "samples"
    assert loss(result.model, data) > 1.01 * loss(trained_net(), data)
    # Without the kind of the request, the classes would have been taken for forgotten ones.
    assert result.scores.forget > 0.9
    assert result.kept_accuracy is not None
    assert result.kept_accuracy.unlearned > 0.95


def test_only_amun_needs_nothing_to_compare_samples_with() -> None:
    data = replace(some(), test=None, holdout=torch.arange(0))
    result = forget(data, range(60), TOYS["amun"].method("samples"))
    assert loss(result.model, data) > 1.05 * loss(trained_net(), data)
    for name in ("neg-grad", "random-label"):
        with pytest.raises(BadInput, match="amun"):
            forget(data, range(60), TOYS[name].method("samples"))


@pytest.mark.parametrize("kind", ["class", "samples"])
def test_other_methods_are_refused_with_the_names_of_those_that_work(kind: str) -> None:
    data = class_c() if kind == "class" else some()
    request = duck.ForgetClasses([2]) if kind == "class" else range(60)
    for name in set(FORGETTING[kind]) - set(retain_free(kind)):
        with pytest.raises(BadInput, match="needs retain samples") as caught:
            forget(data, request, name, new_model=trained_net, recipe=RECIPE)
        assert all(other in str(caught.value) for other in retain_free(kind))


def test_a_method_for_the_other_kind_names_only_those_that_work() -> None:
    with pytest.raises(BadInput, match="single samples") as caught:
        forget(class_c(), duck.ForgetClasses([2]), "amun")
    assert "delete" in str(caught.value)
    assert "scrub" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "request_", "expected"),
    [
        (class_c, duck.ForgetClasses([2]), "delete"),
        (some, range(60), "amun"),
        (lambda: some(2), range(2), "neg-grad"),
        (lambda: replace(some(2), test=None, holdout=torch.arange(0)), range(2), "amun"),
    ],
)
@pytest.mark.parametrize("recipe", [None, RECIPE])
def test_auto_chooses_a_method_that_needs_none(
    data: Callable[[], Data], request_: Any, expected: str, recipe: Recipe | None
) -> None:
    scenario = (request_ if callable(request_) else duck.ForgetSamples(request_))(data())
    assert METHODS.name_of(choose_method(scenario, recipe)[0]) == expected


def test_assurance_is_refused_before_anything_runs() -> None:
    scenario = duck.ForgetClasses([2])(class_c())
    with pytest.raises(BadInput, match="no retain samples"):
        methods_by_cost(scenario, RECIPE)


def test_an_audit_is_refused() -> None:
    result = forget(class_c(), duck.ForgetClasses([2]), TOYS["delete"].method("class"))
    with pytest.raises(BadInput, match="retain samples"):
        duck.audit(result)
    assert "duck.audit(result)" not in str(result)


def test_nothing_is_left_for_a_second_request() -> None:
    first = forget(some(), range(60), TOYS["amun"].method("samples"))
    with pytest.raises(BadInput, match="none are left"):
        duck.forget(first, forget=[1])


def test_the_classes_that_remain() -> None:
    data = some()
    samples = duck.ForgetSamples(range(60))(data).task()
    assert retained_classes(samples).tolist() == [0, 1, 2, 3]
    assert retained_classes(duck.ForgetClasses([2])(class_c()).task()).tolist() == [0, 1, 3]
    assert retained_classes(class_scenario().task()).tolist() == [0, 1, 3]
    assert retained_classes(samples_scenario().task()).tolist() == [0, 1, 2, 3]


def test_a_single_sample_aims_at_the_middle_of_unseen_samples() -> None:
    task = duck.ForgetSamples(["0"])(some(1)).task()
    rule = make_stop_rule(trained_net(), task)
    assert isinstance(rule, RankStopRule)
    assert rule.target_ranks.tolist() == [0.5]


def test_several_samples_aim_at_their_own_order() -> None:
    task = duck.ForgetSamples(range(40))(some(40)).task()
    model = trained_net()
    rule = make_stop_rule(model, task)
    assert isinstance(rule, RankStopRule)
    # Of each class there are ten samples: ranks 0.05, 0.15, ... 0.95, limited to 0.2 and 0.8.
    losses = outcomes(model, task.forget).losses[task.forget.labels == 0]
    targets = rule.target_ranks[task.forget.labels == 0][losses.argsort()]
    expected = [0.2, 0.2, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.8, 0.8]
    assert targets.tolist() == pytest.approx(expected)
