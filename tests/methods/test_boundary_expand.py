"""Boundary Expanding: a row is added to the head, trained for, and cut off."""

import math
from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.methods._head_rows import narrow, widen
from duck.methods.boundary_expand import BoundaryExpand
from duck.methods.presets import preset
from duck.models.head import logits_of
from duck.runtime import seeded
from duck.types import Progress, Task
from tests.methods.test_duck import points
from tests.toys import class_scenario, head_of, toy_task, trained_net

RETAIN = points([(0.0, 1.0)], [1])


class ConvHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(1, 6, 3)
        self.head = nn.Conv2d(6, 4, 1)

    def forward(self, images: Tensor) -> Tensor:
        return logits_of(self.head(torch.relu(self.body(images))).mean((2, 3)))


@pytest.mark.parametrize("head", [nn.Linear(9, 4), nn.Linear(9, 4, bias=False), nn.Conv2d(9, 4, 1)])
def test_the_old_rows_are_copied_and_come_back(head: nn.Linear | nn.Conv2d) -> None:
    before = {name: value.clone() for name, value in head.state_dict().items()}
    widen(head, seeded(0, "row"))
    for name, value in head.state_dict().items():
        assert value.shape == (5, *before[name].shape[1:])
        assert torch.equal(value[:4], before[name])
        # As torch draws: evenly within one over the root of the 9 inputs.
        assert 0 < value[4].abs().max() <= 1 / 3
    narrow(head, 4)
    assert {name: value.shape for name, value in head.state_dict().items()} == {
        name: value.shape for name, value in before.items()
    }
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())


def test_what_is_frozen_of_the_head_stays_as_it_was() -> None:
    original = trained_net()
    head_of(original).bias.requires_grad_(False)
    after = head_of(
        BoundaryExpand(lr=1e-2, batch_size=32, epochs=2)(original, toy_task(class_scenario()))
    )
    assert torch.equal(after.bias, head_of(original).bias)
    assert not torch.equal(after.weight, head_of(original).weight)
    assert (after.weight.requires_grad, after.bias.requires_grad) == (True, False)


def test_the_new_row_comes_from_the_generator() -> None:
    one, other, third = (nn.Linear(9, 4) for _ in range(3))
    widen(one, seeded(0, "row"))
    widen(other, seeded(0, "row"))
    widen(third, seeded(1, "row"))
    assert torch.equal(one.weight[4], other.weight[4])
    assert not torch.equal(one.weight[4], third.weight[4])


def test_the_label_is_the_shadow_class() -> None:
    head = nn.Linear(2, 2)
    heard: list[Progress] = []
    task = Task(points([(1.0, 2.0)], [0]), RETAIN, None, 2, report=heard.append)
    unlearned = BoundaryExpand(lr=0.0, epochs=1)(head, task)
    widen(head, seeded(0, "boundary-expand"))
    logits = head(torch.tensor([1.0, 2.0])).tolist()
    assert heard[0].loss == pytest.approx(
        math.log(sum(math.exp(z) for z in logits)) - logits[2], rel=1e-5
    )
    # At a rate of 0 nothing but the row came and went.
    assert torch.equal(unlearned.state_dict()["weight"], head.weight[:2])


def test_all_weights_are_trained_with_a_row_more() -> None:
    rows: list[int] = []
    original = trained_net()
    task = toy_task(
        class_scenario(), report=lambda news: rows.append(len(head_of(news.model).weight))
    )
    unlearned = BoundaryExpand(lr=1e-3, batch_size=32, epochs=2)(original, task)
    assert set(rows) == {5}
    before, after = original.state_dict(), unlearned.state_dict()
    assert {name: value.shape for name, value in after.items()} == {
        name: value.shape for name, value in before.items()
    }
    assert not [
        name for name, _ in original.named_parameters() if torch.equal(before[name], after[name])
    ]


def test_a_convolution_as_head() -> None:
    net, task = ConvHead(), toy_task(class_scenario())
    images = next(task.forget.batches(60)).images
    still, moved = (BoundaryExpand(lr=lr, epochs=2)(net, task)(images) for lr in (0.0, 0.01))
    assert torch.equal(still, net(images))
    assert moved.shape == (60, 4)
    assert not torch.equal(moved, still)


def test_a_head_that_cannot_be_widened() -> None:
    net = nn.Sequential(OrderedDict(first=nn.Linear(2, 2), body=nn.Sequential(nn.Linear(2, 2))))
    with pytest.raises(BadInput, match="head 'body' is a Sequential"):
        BoundaryExpand()(net, Task(points([(1.0, 2.0)], [0]), RETAIN, None, 2, head="body"))


def test_the_papers_numbers() -> None:
    assert preset("boundary-expand", "tiny-imagenet", "class", name="paper") == BoundaryExpand(
        lr=1e-5, batch_size=64, epochs=10
    )
