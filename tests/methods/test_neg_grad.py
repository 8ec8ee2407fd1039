"""Negative Gradient against numbers worked out by hand."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from duck.methods.neg_grad import NegGrad
from duck.methods.presets import preset
from duck.predict import accuracy
from duck.scenarios import ForgetSamples
from duck.types import Progress, Task
from tests.methods.test_duck import points
from tests.toys import class_scenario, samples_scenario, toy_data, toy_task, trained_net

FORGET, RETAIN = points([(2.0, 0.0)], [0]), points([(0.0, 1.0)], [1])


def identity() -> nn.Linear:
    net = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.eye(2))
    return net


def epochs_of(method: NegGrad, **rest: object) -> tuple[nn.Module, list[Progress]]:
    heard: list[Progress] = []
    task = toy_task(
        class_scenario(),
        report=lambda news: heard.append(news) if news.is_epoch_end else None,
        **rest,
    )
    return method(trained_net(), task), heard


def test_the_loss_is_minus_the_cross_entropy() -> None:
    heard: list[Progress] = []
    NegGrad(max_epochs=1)(identity(), Task(FORGET, RETAIN, None, 2, report=heard.append))
    assert heard[-1].loss == pytest.approx(-math.log(1 + math.exp(-2.0)), rel=1e-6)


def test_one_step_raises_the_loss() -> None:
    unlearned = NegGrad(lr=0.1, max_epochs=1, weight_decay=0.0)(
        identity(), Task(FORGET, RETAIN, None, 2)
    )
    # Softmax of (2, 0) minus (1, 0), times the point (2, 0): the slope of the loss, which is added.
    wrong = 1 / (1 + math.exp(2.0))
    expected = torch.eye(2) + 0.1 * torch.tensor([[-wrong * 2, 0.0], [wrong * 2, 0.0]])
    torch.testing.assert_close(unlearned.state_dict()["weight"], expected)


def test_three_steps_by_hand_with_momentum_decay_and_gamma() -> None:
    method = NegGrad(lr=0.1, max_epochs=3, milestones=(2,), gamma=0.25, tolerance=0.0)
    task = Task(FORGET, RETAIN, None, 2)
    unlearned = replace(method, momentum=0.8, weight_decay=0.5)(identity(), task)
    image, weight, momentum = torch.tensor([2.0, 0.0]), torch.eye(2), torch.zeros(2, 2)
    for lr in (0.1, 0.1, 0.025):  # the rate falls after the second epoch
        ascent = torch.outer((weight @ image).softmax(0) - torch.tensor([1.0, 0.0]), image)
        momentum = 0.8 * momentum - ascent + 0.5 * weight
        weight = weight - lr * momentum
    torch.testing.assert_close(unlearned.state_dict()["weight"], weight)


def test_the_stop_rule_ends_the_method_when_the_class_is_forgotten() -> None:
    unlearned, heard = epochs_of(NegGrad(lr=3e-3, batch_size=32))
    assert 1 < len(heard) < 100
    assert accuracy(unlearned, toy_task(class_scenario()).forget) < 0.01
    # No accuracy is below a tolerance of 0: then the number of epochs is the end of it.
    assert len(epochs_of(NegGrad(lr=1e-4, batch_size=32, tolerance=0.0, max_epochs=3))[1]) == 3


def test_looking_after_each_step_stops_within_an_epoch() -> None:
    retain = toy_task(class_scenario()).retain
    late, early = (
        epochs_of(NegGrad(lr=1e-2, batch_size=8, check_every=every))[0] for every in (0, 1)
    )
    assert accuracy(late, retain) < accuracy(early, retain)


def test_a_single_sample_leaves_the_statistics_of_batchnorm_alone() -> None:
    original, task = trained_net(), toy_task(ForgetSamples(["40"])(toy_data()))
    unlearned = NegGrad(max_epochs=2)(original, task)
    before, after = original.state_dict(), unlearned.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert not {name for name in moved if "running" in name}


def test_a_single_sample_of_a_net_that_normalises_single_vectors() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    unlearned = NegGrad(max_epochs=2)(
        net, Task(FORGET, points([(0.0, 1.0), (1.0, 0.0)], [1, 0]), None, 2)
    )
    assert all(value.isfinite().all() for value in unlearned.state_dict().values())


def test_the_papers_numbers() -> None:
    assert preset("neg-grad", "cifar100", "samples", name="paper") == NegGrad(
        lr=4e-4, batch_size=256, milestones=(7, 9)
    )
    assert preset("neg-grad", "tiny-imagenet", "class", name="paper") == NegGrad(
        lr=1e-2, batch_size=256
    )


def test_a_step_that_overshoots_ends_it_and_is_noted() -> None:
    task, notes = toy_task(samples_scenario()), list[str]()
    unlearned = NegGrad(lr=10.0, batch_size=64)(trained_net(), replace(task, unmet=notes.append))
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            unlearned.state_dict().values(), trained_net().state_dict().values(), strict=True
        )
    )
    assert "Lower the learning rate." in notes[0]
