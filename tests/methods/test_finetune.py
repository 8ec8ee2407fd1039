"""FineTuning: plain SGD on the retain samples, and on nothing else."""

from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from duck.methods.finetune import FineTuning
from duck.methods.presets import preset
from duck.types import Recipe, Task
from tests.methods.test_duck import points
from tests.toys import RECIPE, class_scenario, head_of, toy_task, trained_net

START = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])


def linear() -> nn.Linear:
    net = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        net.weight.copy_(START)
    return net


def test_two_epochs_by_hand_with_momentum_decay_and_a_milestone() -> None:
    task = Task(points([(5.0, 5.0)], [2]), points([(1.0, 0.0), (0.0, 1.0)], [0, 1]), None, 3)
    tuned = FineTuning(
        lr=0.5, batch_size=2, epochs=2, milestones=(1,), gamma=0.2, momentum=0.9, weight_decay=0.01
    )
    unlearned = tuned(linear(), task)
    weight, speed = START, torch.zeros(3, 2)
    for rate in (0.5, 0.1):
        # The retain points are the unit vectors, so their logits are the columns of the weights:
        # softmax minus one-hot, over 2.
        slope = (weight.softmax(0) - torch.eye(3)[:, :2]) / 2
        speed = 0.9 * speed + slope + 0.01 * weight
        weight = weight - rate * speed
    torch.testing.assert_close(unlearned.state_dict()["weight"], weight)
    assert cross_entropy(weight.T, torch.tensor([0, 1])) < cross_entropy(
        START.T, torch.tensor([0, 1])
    )


def test_of_the_originals_recipe_only_the_augmentation_counts() -> None:
    def head(recipe: Recipe) -> torch.Tensor:
        unlearned = FineTuning(epochs=1)(trained_net(), toy_task(class_scenario(), recipe=recipe))
        return head_of(unlearned).weight.detach()

    other = replace(
        RECIPE,
        nesterov=True,
        label_smoothing=0.3,
        momentum=0.1,
        epochs=7,
        batch_size=8,
        optimizer="adam",
    )
    assert torch.equal(head(RECIPE), head(other))
    assert not torch.equal(head(RECIPE), head(replace(RECIPE, augment="crop")))


def test_the_papers_numbers() -> None:
    assert preset("finetune", "cifar10", "samples", name="paper") == FineTuning(
        lr=0.1, batch_size=32, epochs=30, milestones=(8, 15)
    )
