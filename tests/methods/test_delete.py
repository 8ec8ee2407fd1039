"""DELETE: one step against numbers worked out by hand, and what it leaves alone."""

from typing import Any

import pytest
import torch
from torch import Tensor

from duck.data.examples import Resident
from duck.errors import BadInput
from duck.methods._distillation import divergences_from
from duck.methods.delete import Delete, masked_outputs
from duck.predict import accuracy, logits_on
from duck.types import Examples, Recipe, Task
from tests.methods.test_duck import points
from tests.methods.test_warm_restart import START, linear
from tests.toys import TOYS, class_scenario, toy_task, trained_net

UNITS = [(1.0, 0.0), (0.0, 1.0)]


class NoData(Examples):
    """A retain set that cannot be used."""

    def __init__(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def unit_task(labels: list[int], retain: Any = None) -> Task:
    """The forget points are the unit vectors, so their logits are the columns of the weights."""
    forget: Resident = points(UNITS, labels)
    return Task(forget, retain or NoData(), None, 3, recipe=Recipe(precision="float32"))


def test_one_step_by_hand_without_retain_samples() -> None:
    method = Delete(lr=0.5, epochs=1, batch_size=2, momentum=0.0, weight_decay=0.0)
    unlearned = method(linear(), unit_task([2, 2]))
    # Columns (1, 0, 0.5) and (0, 1, 0.5); without the third class, logits 1 and 0.
    high, low = 1 / (1 + torch.e**-1), 1 / (1 + torch.e)
    target = torch.tensor([[high, low], [low, high], [0.0, 0.0]])
    expected = START - 0.5 * (START.softmax(0) - target) / 2
    torch.testing.assert_close(unlearned.state_dict()["weight"], expected)


def test_no_forgotten_class_is_a_target() -> None:
    assert masked_outputs(linear(), unit_task([1, 2])).tolist() == [[1.0, 0.0, 0.0]] * 2


def test_one_class_must_remain() -> None:
    task = Task(points([*UNITS, (1.0, 1.0)], [0, 1, 2]), NoData(), None, 3)
    with pytest.raises(BadInput, match="at least two classes"):
        masked_outputs(linear(), task)


def test_divergence_by_hand() -> None:
    target = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    student = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]).log()
    # 0.5 log(0.5 / 0.5) + 0.5 log(0.5 / 0.25), and log(1 / 0.25).
    expected = torch.tensor([0.5, 2.0]) * torch.tensor(2.0).log()
    torch.testing.assert_close(divergences_from(target, student), expected)


def test_outputs_on_the_forgotten_class_become_the_originals_on_the_other_classes() -> None:
    original, task = trained_net(), toy_task(class_scenario())
    targets = masked_outputs(original, task)
    unlearned = TOYS["delete"].method("class")(original, task)

    def distance(logits: Tensor) -> float:
        return float(divergences_from(targets, logits).mean())

    assert distance(logits_on(unlearned, task.forget)) < 0.1
    assert distance(logits_on(original, task.forget)) > 1.0
    assert accuracy(unlearned, task.retain) >= 0.95
