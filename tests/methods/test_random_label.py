"""Random Label: labels drawn again in every step, from the classes of the retain set."""

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.methods._relabelling import RelabelledBatches, random_labels
from duck.methods.presets import preset
from duck.methods.random_label import RandomLabel
from duck.runtime import seeded
from duck.training.batching import ShuffledPass
from duck.types import Progress, Task
from tests.methods.test_duck import points
from tests.toys import class_scenario, toy_task, trained_net

RETAIN = points([(0.0, 0.0)] * 3, [0, 1, 3])


def drawn_labels(forget_label: int, epochs: int = 1) -> list[Tensor]:
    """The labels of 400 forget samples in each epoch of Random Label, of four classes of which 2
    has no retain samples."""
    forget = points([(0.0, 0.0)] * 400, [forget_label] * 400)
    batches = RelabelledBatches(
        ShuffledPass("forget", forget, 100), random_labels(RETAIN.labels.unique())
    )
    generator = seeded(0, "random-label")
    found = []
    for _ in range(epochs):
        labels = torch.empty(400, dtype=torch.int64)
        for step in batches.epoch(generator):
            labels[step["forget"].rows] = step["forget"].labels
        found.append(labels)
    return found


def test_labels_come_evenly_from_the_retain_classes_and_may_be_a_samples_own() -> None:
    # 133 are expected of each of three classes, with a standard deviation of 9.4.
    for own in (2, 0):
        counts = drawn_labels(own)[0].bincount(minlength=4)
        assert counts[2] == 0
        assert (counts[[0, 1, 3]] - 133).abs().max() < 40


def test_every_epoch_draws_new_labels() -> None:
    first, second = drawn_labels(2, epochs=2)
    # A third of them agrees by chance.
    assert 0.2 < (first == second).double().mean() < 0.5


def test_one_class_is_not_enough() -> None:
    task = Task(points([(1.0, 1.0)], [0]), points([(1.0, 0.0)], [0]), None, 2)
    with pytest.raises(BadInput, match="at least two classes"):
        RandomLabel()(nn.Linear(2, 2), task)


def test_two_steps_by_hand() -> None:
    """Momentum, decay, a rate that a milestone halves, and in each step a new label of classes 0, 1
    and 3."""
    image = torch.tensor([3.0, 2.0])
    start = torch.arange(8.0).view(4, 2) / 10
    net = nn.Linear(2, 4, bias=False)
    with torch.no_grad():
        net.weight.copy_(start)

    def by_hand(labels: tuple[int, ...]) -> Tensor:
        weight, speed = start, torch.zeros(4, 2)
        for rate, label in zip((0.5, 0.25), labels, strict=True):
            slope = torch.outer((weight @ image).softmax(0) - torch.eye(4)[label], image)
            speed = 0.9 * speed + slope + 5e-4 * weight
            weight = weight - rate * speed
        return weight

    drawn = set()
    for seed in range(12):
        task = Task(points([(3.0, 2.0)], [2]), RETAIN, None, 4, seed=seed)
        unlearned = RandomLabel(lr=0.5, tolerance=0.0, max_epochs=2, milestones=(1,))(net, task)
        found = unlearned.state_dict()["weight"]
        matching = [
            labels
            for labels in product(range(4), repeat=2)
            if torch.allclose(found, by_hand(labels), atol=1e-5)
        ]
        assert len(matching) == 1
        drawn.add(matching[0])
    assert {label for labels in drawn for label in labels} == {0, 1, 3}
    assert any(first != second for first, second in drawn)


def test_the_stop_rule_ends_the_method_when_the_class_is_forgotten() -> None:
    heard: list[Progress] = []
    task = toy_task(
        class_scenario(), report=lambda news: heard.append(news) if news.is_epoch_end else None
    )
    RandomLabel(lr=1e-2, batch_size=32)(trained_net(), task)
    assert 1 < len(heard) < 100
    assert {news.phase for news in heard} == {"random-label"}


def test_the_papers_numbers() -> None:
    assert preset("random-label", "cifar10", "class", name="paper") == RandomLabel(
        lr=1e-3, batch_size=256, milestones=(3,), gamma=0.5
    )
    assert preset("random-label", "tiny-imagenet", "samples", name="paper") == RandomLabel(
        lr=1e-3, milestones=(7,)
    )
