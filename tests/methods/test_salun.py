"""SalUn against numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from duck.data.examples import examples
from duck.errors import BadInput
from duck.methods.salun import SalUn
from duck.types import Task
from tests.toys import class_scenario, samples_scenario, toy_task, trained_net


def two_layers() -> nn.Module:
    """At weights 0 the gradient of a sample x of class 0 is -x/2 in row 0 and x/2 in row 1, and the bias's -1/2 and 1/2."""
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.zero_()
    return net


def line_task(rows: list[tuple[float, float]], labels: list[int]) -> Task:
    points = examples(torch.tensor(rows), torch.tensor(labels), np.array([str(i) for i in range(len(rows))]))
    return Task(points, points, None, 2)


def test_the_mask_is_the_top_half_of_the_summed_gradient() -> None:
    # Sums over the samples: x1: 6, x2: 5 - 5 = 0 (single gradients are large, but cancel), bias: 2.
    task = line_task([(6.0, 5.0), (0.0, -5.0)], [0, 0])
    masks = SalUn(share=2 / 6).prepare(two_layers(), task)
    assert masks["weight"].tolist() == [[True, False], [True, False]]
    assert masks["bias"].tolist() == [False, False]
    wider = SalUn(share=4 / 6).prepare(two_layers(), task)
    assert wider["weight"].tolist() == [[True, False], [True, False]]
    assert wider["bias"].tolist() == [True, True]


def test_the_ranking_is_over_all_weights_together_and_the_half_is_exact() -> None:
    model = trained_net()
    masks = SalUn().prepare(model, toy_task(class_scenario()))
    counts = {name: int(mask.sum()) for name, mask in masks.items()}
    assert sum(counts.values()) == sum(mask.numel() for mask in masks.values()) // 2
    assert counts["head.weight"] != masks["head.weight"].numel() // 2
    assert set(masks) == {name for name, _ in model.named_parameters()}


def test_weights_outside_the_mask_do_not_move_under_decay_and_momentum() -> None:
    model, task = trained_net(), toy_task(class_scenario())
    masks = SalUn().prepare(model, task)
    unlearned = SalUn(batch_size=32, epochs=3, weight_decay=0.1, momentum=0.9)(model, task)
    for (name, before), after in zip(model.named_parameters(), unlearned.parameters(), strict=True):
        assert torch.equal(before[~masks[name]], after[~masks[name]])
        assert not torch.equal(before[masks[name]], after[masks[name]])


def test_a_prepared_mask_is_used_as_it_is() -> None:
    model, task = trained_net(), toy_task(samples_scenario())
    only_bias = {name: torch.full_like(p, name == "head.bias", dtype=torch.bool) for name, p in model.named_parameters()}
    unlearned = SalUn(batch_size=32, epochs=1)(model, replace(task, prepared=only_bias))
    moved = [name for (name, a), b in zip(model.named_parameters(), unlearned.parameters(), strict=True) if not torch.equal(a, b)]
    assert moved == ["head.bias"]


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_share_is_a_share(share: float) -> None:
    with pytest.raises(BadInput, match=r"share must be in \(0, 1\]"):
        SalUn(share=share)(trained_net(), toy_task(class_scenario()))
