"""DUCK-soft: soft targets and their temperature by hand, and the stop rule on losses."""

import math
from dataclasses import replace

import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import mannwhitneyu
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.methods._distillation import divergences_from
from duck.methods._stopping import RankStopRule, loss_auc, make_stop_rule
from duck.methods.duck import Duck
from duck.methods.duck_soft import MIN_TEMPERATURE, DuckSoft, _ClassRemoval, fit_temperature
from duck.models.head import with_embeddings
from duck.predict import accuracy, logits_on, outcomes
from duck.scenarios import ForgetSamples
from duck.types import Batch, Task
from tests.methods.test_duck import (
    Plane,
    plane_task,
    points,
    same_weights,
    threshold_task,
    wrapped,
)
from tests.toys import (
    TOYS,
    class_scenario,
    head_of,
    samples_scenario,
    toy_data,
    toy_task,
    trained_net,
)


def test_targets_by_hand() -> None:
    # The centroids are (3, 0), (0, 3) and (-2, -2); class 2 is forgotten and has none.
    net, task = plane_task(points([(1.0, 1.0), (0.0, 2.0)], [2, 2]))
    targets = _ClassRemoval(target_temperature=0.5)._targets(net, task)
    half = math.sqrt(0.5)
    cosines = torch.tensor([[half, half, -1.0], [0.0, 1.0, -half]])
    torch.testing.assert_close(targets[:, [0, 1, 3]], (2 * cosines).softmax(1))
    assert targets[:, 2].tolist() == [0.0, 0.0]


def drawn_closeness() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (200,), generator=generator)
    closeness = 0.3 * torch.randn(200, 4, generator=generator)
    closeness[torch.arange(200), labels] += 0.3
    return closeness, labels


def test_the_temperature_has_the_lowest_negative_log_likelihood() -> None:
    closeness, labels = drawn_closeness()

    def loss(temperature: float) -> float:
        return float(cross_entropy(closeness.double() / temperature, labels))

    found = minimize_scalar(loss, bounds=(0.02, 1.0), method="bounded", options={"xatol": 1e-9})
    assert 0.1 < found.x < 0.9
    assert fit_temperature(closeness, labels) == pytest.approx(found.x, rel=1e-4)


def test_the_temperature_of_samples_that_are_all_right_has_a_limit() -> None:
    assert fit_temperature(torch.eye(3), torch.arange(3)) == pytest.approx(MIN_TEMPERATURE)


def test_the_temperature_is_fitted_on_holdout_samples_of_the_remaining_classes() -> None:
    net, task = plane_task(points([(1.0, 1.0)], [2]))
    unseen = [(1.0, 0.5), (0.5, 1.0), (-1.0, 0.2), (1.0, 0.9)]
    task = replace(task, holdout=points(unseen, [0, 1, 3, 1]))
    with_forgotten = replace(task, holdout=points([*unseen, (1.0, 1.0)], [0, 1, 3, 1, 2]))
    targets = _ClassRemoval()._targets(net, task)
    assert torch.equal(_ClassRemoval()._targets(net, with_forgotten), targets)
    by_retain = _ClassRemoval()._targets(net, replace(task, holdout=None))
    assert by_retain.amax() > targets.amax()
    # By hand: cosines with the centroids, whose classes 0, 1 and 3 are columns 0, 1 and 2.
    directions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-math.sqrt(0.5), -math.sqrt(0.5)]])
    cosines = nn.functional.normalize(torch.tensor(unseen)) @ directions.T
    temperature = fit_temperature(cosines, torch.tensor([0, 1, 2, 1]))
    assert MIN_TEMPERATURE < temperature < 1.0
    fixed = _ClassRemoval(target_temperature=temperature)._targets(net, task)
    torch.testing.assert_close(targets, fixed)


def test_the_forget_loss_is_the_divergence_of_the_outputs_from_the_targets() -> None:
    net = wrapped(Plane(2), torch.ones(8, 2))
    head = head_of(net.model)
    with torch.no_grad():
        head.weight.copy_(torch.eye(2))
        head.bias.zero_()
    rows = torch.tensor([1, 0])
    forget = Batch(torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]]), torch.tensor([0, 0]), rows)
    retain = Batch(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), torch.tensor([0]))
    targets = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    # Outputs (3/4, 1/4) against (0, 1): log 4. Outputs (1/2, 1/2) against the same: 0.
    spread = math.log(4.0) / 2
    keep = math.log(1 + math.exp(-2.0 / 2.0))
    method = _ClassRemoval(lambda_forget=1.5, lambda_retain=0.5, temperature=2.0)
    loss = method.loss(targets)(net, {"forget": forget, "retain": retain})
    assert loss.item() == pytest.approx(1.5 * spread + 0.5 * keep, rel=1e-5)


def test_outputs_on_the_forgotten_class_spread_as_the_distances_say() -> None:
    original, task = trained_net(), toy_task(class_scenario())
    soft, hard = (TOYS[name].method("class") for name in ("duck-soft", "duck"))
    probe = next(task.retain.batches(8)).images
    with with_embeddings(trained_net(), None, probe) as net:
        targets = _ClassRemoval()._targets(net, task)

    def distance(model: nn.Module) -> float:
        return float(divergences_from(targets, logits_on(model, task.forget)).mean())

    unlearned = soft(original, task)
    assert distance(unlearned) < 0.5 * distance(hard(original, task))
    assert accuracy(unlearned, task.retain) >= 0.95


@pytest.mark.parametrize("scenario", [samples_scenario(), ForgetSamples(["17"])(toy_data())])
def test_single_samples_have_the_targets_of_duck(scenario: object) -> None:
    task = toy_task(scenario)  # type: ignore[arg-type]
    settings = {"batch_size": 64, "lr": 3e-3, "low_batch": 32, "max_epochs": 2}
    soft = DuckSoft(**settings)(trained_net(), task)  # type: ignore[arg-type]
    duck = Duck(**settings, stop="distribution")(trained_net(), task)  # type: ignore[arg-type]
    assert same_weights(soft, duck)


def test_a_target_class_has_precedence() -> None:
    task = toy_task(class_scenario())
    settings = {"batch_size": 64, "lr": 3e-3, "low_batch": 32, "target_class": 1}
    soft = DuckSoft(**settings, stop="auto")(trained_net(), task)  # type: ignore[arg-type]
    assert same_weights(soft, Duck(**settings)(trained_net(), task))  # type: ignore[arg-type]


def rank_task(shift: float) -> tuple[nn.Linear, Task]:
    """Twenty forget samples whose numbers lie `shift` above those of twenty unseen samples."""
    numbers = [0.3 * number for number in range(20)]
    return threshold_task([number + shift for number in numbers], numbers, numbers)


@pytest.mark.parametrize("shift", [2.0, 0.7, 0.0, -0.7])
def test_samples_stop_when_their_losses_are_not_lower_than_unseen_ones(shift: float) -> None:
    net, task = rank_task(shift)
    assert task.holdout is not None
    forget, unseen = (outcomes(net, part).losses for part in (task.forget, task.holdout))
    statistic = mannwhitneyu(forget.numpy(), unseen.numpy()).statistic
    assert loss_auc(net, task.holdout, task) == pytest.approx(statistic / 400)
    rule = make_stop_rule(net, task, "distribution")
    assert not isinstance(rule, RankStopRule)
    # A larger number has a lower loss.
    assert rule() == (shift <= 0)


def test_a_model_that_lost_its_accuracy_has_not_forgotten() -> None:
    net, task = rank_task(1.0)
    rule = make_stop_rule(net, task, "distribution")
    with torch.no_grad():
        net.weight.zero_()
        net.bias[1] = 1.0
    assert task.holdout is not None
    assert loss_auc(net, task.holdout, task) == 0.5
    assert not rule()


def test_losses_are_compared_within_a_class() -> None:
    # The losses of class 1 are all higher than those of class 0.
    net = nn.Linear(1, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0], [0.0]]))
        net.bias.copy_(torch.tensor([0.0, -9.0]))
    numbers = [[0.1 * number] for number in range(20)]
    unseen = points([(n[0],) for n in numbers + numbers], [0] * 20 + [1] * 20)  # type: ignore[misc]
    forget = points([(n[0],) for n in numbers], [1] * 20)  # type: ignore[misc]
    task = Task(forget, unseen, unseen, 2)
    assert loss_auc(net, unseen, task) == pytest.approx(0.5)


def test_fewer_than_twenty_samples_are_ranked_one_by_one() -> None:
    net, task = rank_task(1.0)
    rule = make_stop_rule(net, replace(task, forget=task.forget.take(torch.arange(19))))
    assert isinstance(rule, RankStopRule)


def test_losses_of_samples_end_where_those_of_unseen_samples_are() -> None:
    original, task = trained_net(), toy_task(samples_scenario())
    assert task.holdout is not None
    assert loss_auc(original, task.holdout, task) < 0.45
    unlearned = TOYS["duck-soft"].method("samples")(original, task)
    assert 0.5 <= loss_auc(unlearned, task.holdout, task) < 0.7
    assert accuracy(unlearned, task.retain) >= 0.95
