"""Random Label: one wrong label a sample, drawn once."""

import math

import pytest
import torch
from torch import nn

from duck.errors import BadInput
from duck.methods.presets import preset
from duck.methods.random_label import RandomLabel
from duck.methods.relabelling import loss_on_forget, wrong_labels
from duck.runtime import seeded
from duck.types import Batch, Progress, Task
from tests.methods.test_duck import points
from tests.toys import class_scenario, toy_task, trained_net

RETAIN = points([(0.0, 0.0)] * 3, [0, 1, 3])


def test_neither_the_own_label_nor_one_that_goes() -> None:
    # Of five classes 2 goes and 4 never had samples.
    forget = points([(0.0, 0.0)] * 600, [0] * 300 + [2] * 300)
    labels = wrong_labels(Task(forget, RETAIN, None, 5), seeded(0, "random-label"))
    of_zero, of_two = labels[:300].bincount(minlength=5), labels[300:].bincount(minlength=5)
    assert (of_zero > 0).tolist() == [False, True, False, True, False]
    assert (of_two > 0).tolist() == [True, True, False, True, False]
    # Evenly: 150 and 100 each are expected, with standard deviations of 8.7 and 8.2.
    assert (of_zero[of_zero > 0] - 150).abs().max() < 45
    assert (of_two[of_two > 0] - 100).abs().max() < 45


def test_no_other_class_to_go_to() -> None:
    task = Task(points([(1.0, 1.0)], [0]), points([(1.0, 0.0)], [0]), None, 2)
    with pytest.raises(BadInput, match="at least two classes"):
        RandomLabel()(nn.Linear(2, 2), task)


def test_the_loss_looks_labels_up_by_row() -> None:
    net = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.eye(2))
    batch = Batch(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0]), torch.tensor([1, 0]))
    loss = loss_on_forget(torch.tensor([0, 1]))(net, {"forget": batch})
    # Row 1 is drawn first: logits (2, 0) against label 1, then (0, 3) against label 0.
    expected = (math.log(1 + math.exp(2.0)) + math.log(1 + math.exp(3.0))) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_each_sample_learns_the_one_label_that_was_drawn_for_it() -> None:
    forget = points([(3.0, 0.0), (0.0, 3.0), (-3.0, 0.0), (0.0, -3.0)], [2, 2, 2, 2])
    task = Task(forget, RETAIN, None, 4, seed=5)
    net = nn.Linear(2, 4)
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    unlearned = RandomLabel(lr=0.5, tolerance=0.0, max_epochs=60)(net, task)
    drawn = wrong_labels(task, seeded(5, "random-label"))
    assert len(drawn.unique()) > 1
    assert unlearned(next(forget.batches(4)).images).argmax(1).tolist() == drawn.tolist()


def test_the_stop_rule_ends_it_when_the_class_is_gone() -> None:
    heard: list[Progress] = []
    task = toy_task(class_scenario(), report=lambda news: heard.append(news) if news.ended else None)
    RandomLabel(lr=1e-2, batch_size=32)(trained_net(), task)
    assert 1 < len(heard) < 100
    assert {news.phase for news in heard} == {"random-label"}


def test_the_papers_numbers() -> None:
    assert preset("random-label", "cifar10", "class", name="paper") == RandomLabel(lr=1e-3, batch_size=256, milestones=(3,))
    assert preset("random-label", "tiny-imagenet", "samples", name="paper") == RandomLabel(lr=1e-3, batch_size=256, milestones=(7,))
