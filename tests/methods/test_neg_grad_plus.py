"""NegGrad+ against numbers worked out by hand."""

import math

import pytest
import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.methods.neg_grad_plus import NegGradPlus
from duck.scenarios import ForgetFraction
from duck.types import Batch, Task
from tests.methods.test_duck import points
from tests.toys import class_scenario, toy_data, toy_task


def batch(rows: list[tuple[float, float]], labels: list[int]) -> Batch:
    return Batch(torch.tensor(rows), torch.tensor(labels), torch.arange(len(rows)))


def identity() -> nn.Linear:
    net = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.eye(2))
    return net


STEP = {"forget": batch([(2.0, 0.0), (0.0, 1.0)], [0, 1]), "retain": batch([(0.0, 3.0)], [0])}


@pytest.mark.parametrize("alpha", [0.95, 0.5, 1.0])
def test_the_loss_keeps_the_retain_samples_and_raises_it_on_the_others(alpha: float) -> None:
    ascent = (math.log(1 + math.exp(-2.0)) + math.log(1 + math.exp(-1.0))) / 2
    keep = math.log(1 + math.exp(3.0))
    loss = NegGradPlus(alpha=alpha)._loss(identity(), STEP)
    assert loss.item() == pytest.approx(alpha * keep - (1 - alpha) * ascent, rel=1e-5)


def test_retain_and_forget_samples_pass_the_net_separately() -> None:
    seen: list[int] = []

    class Watching(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            seen.append(len(images))
            return images

    NegGradPlus()._loss(Watching(), STEP)
    assert seen == [1, 2]


def test_two_steps_by_hand_without_momentum_and_decay() -> None:
    task = Task(points([(1.0, 2.0)], [0]), points([(2.0, 1.0)], [1]), None, 2)
    unlearned = NegGradPlus(alpha=0.75, lr=0.5, epochs=2)(identity(), task)
    weight, forget, retain = torch.eye(2), torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    for _ in range(2):
        descend = torch.outer((weight @ retain).softmax(0) - torch.tensor([0.0, 1.0]), retain)
        ascent = torch.outer((weight @ forget).softmax(0) - torch.tensor([1.0, 0.0]), forget)
        weight = weight - 0.5 * (0.75 * descend - 0.25 * ascent)
    torch.testing.assert_close(unlearned.state_dict()["weight"], weight)


def test_a_single_sample_does_not_move_the_statistics_of_batchnorm() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).train()
    one = batch([(1.0, 0.0)], [0])
    loss = NegGradPlus()._loss(
        net, {"forget": one, "retain": batch([(0.0, 3.0), (1.0, 1.0)], [0, 1])}
    )
    assert loss.isfinite()
    assert net[1].num_batches_tracked == 1
    assert net[1].training


def test_every_sample_comes_in_each_epoch_whichever_set_is_larger() -> None:
    for scenario in (class_scenario(), ForgetFraction(0.9)(toy_data())):
        task = toy_task(scenario)
        batches = NegGradPlus(batch_size=32)._batches(task)
        steps = list(batches.epoch(torch.Generator().manual_seed(0)))
        assert len(steps) == len(batches)
        for name, examples in (("forget", task.forget), ("retain", task.retain)):
            assert set(torch.cat([step[name].rows for step in steps]).tolist()) == set(
                range(len(examples))
            )


def test_alpha_is_a_share() -> None:
    task = Task(points([(1.0, 2.0)], [0]), points([(0.0, 1.0)], [1]), None, 2)
    with pytest.raises(BadInput, match=r"alpha must be in \[0, 1\], got 1.5"):
        NegGradPlus(alpha=1.5)(identity(), task)
