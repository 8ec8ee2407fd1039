"""Boundary Shrink: the label across the nearest boundary, worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from duck.data.examples import Pixels, Resident, examples
from duck.methods._relabelling import label_loss
from duck.methods.boundary_shrink import BoundaryShrink, BoundaryShrinkRetain, limits
from duck.methods.presets import preset
from duck.types import Batch, Examples, Task
from tests.methods.test_duck import points
from tests.toys import class_scenario, toy_examples, toy_task, trained_net

PIXELS = Pixels((0.5, 0.25), (0.5, 0.25))


def dots(values: list[tuple[int, int]], labels: list[int]) -> Resident:
    """Images of one pixel with two channels; a step of a tenth of the range is 0.2 in one and 0.4
    in the other."""
    images = torch.tensor(values, dtype=torch.uint8).view(-1, 2, 1, 1)
    return examples(
        images, torch.tensor(labels), np.array([str(i) for i in range(len(values))]), PIXELS
    )


def net(bias: list[float]) -> nn.Module:
    """Class 1 looks at the first channel, class 2 at the second, 0 and 3 at none; a step away from
    0 raises both channels."""
    head = nn.Linear(2, 4)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
        head.bias.copy_(torch.tensor(bias))
    return nn.Sequential(nn.Flatten(), head)


def targets(forget: Examples, bias: list[float], **settings: float) -> list[int]:
    task = Task(forget, dots([(0, 0), (0, 0)], [1, 2]), None, 4)
    return BoundaryShrink(**settings)._targets(net(bias), task).tolist()  # type: ignore[arg-type]


def test_the_step_is_in_pixels_and_crosses_the_boundary() -> None:
    # About (0.00, 1.01) after normalising. With 1.11 for class 1, the image itself is nearer to
    # class 1 (1.11 to 1.01); moved by (0.2, 0.4) it is nearer to class 2 (1.31 to 1.41), and moved
    # by (0.1, 0.1) it would not be.
    forget = dots([(128, 128)], [0])
    assert targets(forget, [5.0, 1.11, 0.0, 0.0]) == [2]
    assert targets(forget, [5.0, 1.11, 0.0, 0.0], epsilon=0.0) == [1]


def test_the_step_ends_at_white() -> None:
    # The second channel is white, 3.0, and cannot rise: class 1 stays ahead with 3.01 + 0.2.
    assert targets(dots([(128, 255)], [0]), [9.0, 3.01, 0.0, 0.0]) == [1]


def test_neither_the_own_class_nor_a_forgotten_one() -> None:
    # Class 3 has the largest logit but no retain samples; of the second sample, class 2 is its own.
    assert targets(dots([(128, 128), (128, 128)], [0, 2]), [5.0, 1.11, 0.0, 9.0]) == [2, 1]


def test_floats_step_by_the_range_that_they_cover() -> None:
    low, high = limits(points([(0.0, -2.0), (1.0, 2.0), (0.5, 0.0)], [0, 0, 0]))
    assert (low.tolist(), high.tolist()) == ([0.0, -2.0], [1.0, 2.0])
    images = torch.arange(24.0).view(2, 3, 2, 2)
    low, high = limits(examples(images, torch.tensor([0, 1]), np.array(["a", "b"])))
    assert low.shape == (3, 1, 1)
    assert low.flatten().tolist() == [0.0, 4.0, 8.0]
    assert high.flatten().tolist() == [15.0, 19.0, 23.0]


def test_black_and_white_of_normalised_pixels() -> None:
    low, high = limits(toy_examples(8, seed=0))
    torch.testing.assert_close(low, torch.full((1, 1, 1), -1.5))
    torch.testing.assert_close(high, torch.full((1, 1, 1), 3.5))


def test_retain_samples_join_with_their_own_labels() -> None:
    plain = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        plain.weight.copy_(torch.eye(2))
    forget = Batch(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), torch.tensor([0]))
    retain = Batch(torch.tensor([[0.0, 3.0]]), torch.tensor([1]), torch.tensor([0]))
    loss = label_loss(
        plain, {"forget": forget._replace(labels=torch.tensor([1])), "retain": retain}
    )
    assert loss.item() == pytest.approx(
        (math.log(1 + math.exp(2.0)) + math.log(1 + math.exp(-3.0))) / 2, rel=1e-6
    )


def test_retain_samples_are_used_by_the_variant_alone() -> None:
    task = toy_task(class_scenario())
    drawn = []
    for method in (
        BoundaryShrink(lr=1e-3, batch_size=32, epochs=1),
        BoundaryShrinkRetain(lr=1e-3, batch_size=32, epochs=1),
    ):
        retain, is_drawn = task.retain.counting()
        method(trained_net(), replace(task, retain=retain))
        drawn.append(int(is_drawn.sum()))
    # 60 forget samples are two batches of 32, each with as many retain samples.
    assert drawn == [0, 64]


def test_the_papers_numbers() -> None:
    assert preset("boundary-shrink", "cifar10", "class", name="paper") == BoundaryShrink(
        lr=1e-5, batch_size=64, epochs=15
    )
