"""L1-Sparse: the penalty and how it fades, by hand."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from duck.methods.l1_sparse import L1Sparse, l1_norm
from duck.methods.presets import preset
from duck.predict import accuracy
from duck.types import Batch
from tests.toys import class_scenario, toy_task, trained_net


def test_the_penalty_of_all_weights_fades_epoch_by_epoch() -> None:
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, -2.0], [0.5, 0.0]]))
        net.bias.copy_(torch.tensor([0.0, 0.25]))
    batch = Batch(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), torch.tensor([0]))
    loss = L1Sparse(gamma=0.4, epochs=4)._loss(2, torch.device("cpu"))
    values = [loss(net, {"retain": batch}).item() for _ in range(8)]
    # Logits (2, 1.25); the weights' absolute values, biases included, sum to 3.75.
    keep = math.log(1 + math.exp(-0.75))
    assert values == pytest.approx(
        [keep + gamma * 3.75 for gamma in (0.4, 0.4, 0.3, 0.3, 0.2, 0.2, 0.1, 0.1)], rel=1e-5
    )


def test_an_epoch_of_the_penalty_is_a_pass_over_the_retain_samples() -> None:
    heard: list[float] = []
    task = toy_task(
        class_scenario(), report=lambda news: heard.append(news.loss) if news.is_epoch_end else None
    )
    # At a rate of 0 the losses differ by the penalty alone, but for dropout.
    L1Sparse(lr=0.0, batch_size=32, epochs=4, gamma=1.0)(trained_net(), task)
    total = float(l1_norm(trained_net().parameters()).detach())
    assert heard == pytest.approx([total * (1 - epoch / 4) for epoch in range(4)], rel=0.01)


def test_the_penalty_makes_weights_small_and_keeps_the_accuracy() -> None:
    task = toy_task(class_scenario())
    sparse = L1Sparse(lr=0.05, batch_size=32, epochs=5, gamma=3e-3)
    with_penalty, without = (
        method(trained_net(), task) for method in (sparse, replace(sparse, gamma=0.0))
    )
    assert l1_norm(with_penalty.parameters()) < 0.9 * l1_norm(without.parameters())
    assert accuracy(with_penalty, task.retain) >= 0.95


def test_the_papers_numbers() -> None:
    assert preset("l1-sparse", "tiny-imagenet", "samples", name="paper") == L1Sparse(
        lr=1e-3, batch_size=256, epochs=10, gamma=1e-4
    )
