"""SSD against numbers worked out by hand on a net of two weights."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from duck.data.examples import Resident, examples
from duck.methods.ssd import Ssd, importance
from duck.training.batching import MixedBatches
from duck.types import Batch, Task
from tests.toys import samples_scenario, toy_data, toy_task, trained_net


class TwoWeights(nn.Module):
    """Logits (w1 x1 + w2 x2, 0) and a buffer."""

    def __init__(self, first: float, second: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([first, second]))
        self.register_buffer("count", torch.ones(2))

    def forward(self, points: Tensor) -> Tensor:
        score = points @ self.weight
        return torch.stack([score, torch.zeros_like(score)], 1)


def points(rows: list[tuple[float, float]], labels: list[int], prefix: str) -> Resident:
    return examples(
        torch.tensor(rows),
        torch.tensor(labels),
        np.array([f"{prefix}{i}" for i in range(len(rows))]),
    )


def batch(rows: list[tuple[float, float]], labels: list[int]) -> Batch:
    return Batch(torch.tensor(rows), torch.tensor(labels), torch.arange(len(rows)))


def test_importance_is_the_mean_over_batches_of_the_squared_mean_gradient() -> None:
    # At weight 0 the gradient of a sample x of class 0 is -x / 2, of class 1 it is x / 2.
    net = TwoWeights(0.0, 0.0)
    first = batch([(4.0, 0.0), (0.0, 2.0)], [0, 0])  # mean gradient (-1, -1/2)
    second = batch(
        [(4.0, 4.0), (4.0, 8.0)], [0, 1]
    )  # mean gradient (0, 1): opposite ones cancel before the square
    assert importance(net, [first, second])["weight"].tolist() == pytest.approx(
        [(1 + 0) / 2, (0.25 + 1) / 2]
    )


def test_weights_that_matter_more_to_the_forget_samples_are_dampened() -> None:
    # p = 1/2 for every sample, as the weights are orthogonal to all points but in the last row:
    # gradients are x / 2.
    forget = points([(2.0, 2.0)], [1], "f")
    retain = points([(2.0, 2.0), (0.0, 2.0), (0.0, 2.0)], [0, 1, 1], "r")
    net = TwoWeights(3.0, -3.0)
    overall = importance(
        net, [step["mixed"] for step in MixedBatches(forget, retain, 64).epoch(torch.Generator())]
    )["weight"]
    special = importance(net, list(forget.batches(64)))["weight"]
    # All: mean gradient of ((1, 1) - (1, 1) + 2 (0, 2 p)) / 4 with p = sigmoid(-6); forget: (1, 1).
    p = float(torch.sigmoid(torch.tensor(-6.0)))
    assert special.tolist() == pytest.approx([1.0, 1.0])
    assert overall.tolist() == pytest.approx([0.0, p**2], abs=1e-9)
    task = Task(forget, retain, None, 2, prepared={"weight": torch.tensor([0.04, 0.2])})
    # 1 > 10 x 0.04: times 2 x 0.04; 1 < 10 x 0.2: stays.
    dampened = Ssd(alpha=10, dampening=2.0)(net, task)
    assert dampened.get_parameter("weight").tolist() == pytest.approx([3.0 * 0.08, -3.0])
    # Never more than it was.
    assert Ssd(alpha=2, dampening=30.0)(net, task).get_parameter(
        "weight"
    ).tolist() == pytest.approx([3.0, -3.0])
    assert net.weight.tolist() == [3.0, -3.0]
    assert torch.equal(dampened.get_buffer("count"), torch.ones(2))


def test_the_importance_of_all_samples_does_not_depend_on_the_forget_set() -> None:
    model, train, rows = trained_net(), toy_data().train, torch.arange(240)
    tasks = [
        Task(train.take(rows[a:b]), train.take(torch.cat([rows[:a], rows[b:]])), None, 4)
        for a, b in ((0, 60), (200, 240))
    ]
    one, other = (Ssd(batch_size=16).prepare(model, task) for task in tasks)
    assert all(torch.allclose(one[name], other[name], rtol=1e-3, atol=1e-9) for name in one)
    assert set(one) == {name for name, _ in model.named_parameters()}


def test_every_sample_is_in_the_mixed_stream_with_its_own_label_and_image() -> None:
    train = toy_data().train
    forget, retain = train.take(torch.arange(0, 50)), train.take(torch.arange(50, 240))
    plan = MixedBatches(forget, retain, 32)
    steps = [step["mixed"] for step in plan.epoch(torch.Generator().manual_seed(3))]
    assert len(steps) == len(plan) == 8
    assert all(len(step.labels) == 32 for step in steps)
    rows = torch.cat([step.rows for step in steps])
    assert set(rows.tolist()) == set(range(240))
    assert torch.equal(torch.cat([step.labels for step in steps]), train.labels[rows])
    images = next(iter(train.batches(240))).images
    assert torch.equal(torch.cat([step.images for step in steps]), images[rows])
    assert 1 <= int((steps[0].rows < 50).sum()) <= 20


def test_nothing_is_dampened_where_alpha_is_out_of_reach() -> None:
    model = trained_net()
    unlearned = Ssd(alpha=1e9)(model, toy_task(samples_scenario()))
    assert all(
        torch.equal(a, b)
        for a, b in zip(model.state_dict().values(), unlearned.state_dict().values(), strict=True)
    )
