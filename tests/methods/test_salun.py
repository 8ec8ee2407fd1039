"""SalUn against numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from duck.data.examples import examples
from duck.errors import BadInput
from duck.methods.salun import SalUn
from duck.types import Augment, Task
from tests.toys import RECIPE, class_scenario, head_of, samples_scenario, toy_task, trained_net


def two_layers() -> nn.Module:
    """At weights 0 the gradient of a sample x of class 0 is -x/2 in row 0 and x/2 in row 1, and the
    bias's -1/2 and 1/2."""
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.zero_()
    return net


def line_task(rows: list[tuple[float, float]], labels: list[int]) -> Task:
    points = examples(
        torch.tensor(rows), torch.tensor(labels), np.array([str(i) for i in range(len(rows))])
    )
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
    only_bias = {
        name: torch.full_like(p, name == "head.bias", dtype=torch.bool)
        for name, p in model.named_parameters()
    }
    unlearned = SalUn(batch_size=32, epochs=1)(model, replace(task, prepared=only_bias))
    moved = [
        name
        for (name, a), b in zip(model.named_parameters(), unlearned.parameters(), strict=True)
        if not torch.equal(a, b)
    ]
    assert moved == ["head.bias"]


def test_an_epoch_is_a_forget_pass_with_random_labels_and_then_a_retain_pass() -> None:
    task = toy_task(class_scenario())
    batches = SalUn(batch_size=20)._batches(task)
    epochs = [
        list(batches.epoch(generator))
        for generator in [torch.Generator().manual_seed(0)]
        for _ in range(2)
    ]
    assert [name for step in epochs[0] for name in step] == ["forget"] * 3 + ["retain"] * 9
    drawn = [torch.cat([step["forget"].labels for step in epoch[:3]]) for epoch in epochs]
    # All four classes, the forgotten one too, and others in the next epoch.
    assert set(drawn[0].tolist()) == {0, 1, 2, 3}
    assert (drawn[0] != drawn[1]).double().mean() > 0.5
    kept = [(step["retain"].rows, step["retain"].labels) for step in epochs[0][3:]]
    assert all(torch.equal(task.retain.labels[rows], labels) for rows, labels in kept)


def test_two_steps_by_hand() -> None:
    """A forget step towards a drawn label, then a retain step; momentum goes on from one to the
    other; a masked weight stays."""
    forget = examples(torch.tensor([[1.0, 2.0]]), torch.tensor([0]), np.array(["f"]))
    retain = examples(torch.tensor([[3.0, -1.0]]), torch.tensor([1]), np.array(["r"]))
    start = torch.tensor([[0.5, 0.0], [0.0, 0.5]])
    net = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(start)
    mask = torch.tensor([[True, True], [True, False]])

    def by_hand(label: int) -> torch.Tensor:
        weight, speed = start, torch.zeros(2, 2)
        for image, target in ((torch.tensor([1.0, 2.0]), label), (torch.tensor([3.0, -1.0]), 1)):
            slope = torch.outer((weight @ image).softmax(0) - torch.eye(2)[target], image)
            speed = 0.9 * speed + slope + 5e-4 * weight
            weight = torch.where(mask, weight - 0.1 * speed, start)
        return weight

    drawn = set()
    for seed in range(8):
        task = Task(forget, retain, None, 2, seed=seed, prepared={"weight": mask})
        found = SalUn(lr=0.1, epochs=1, batch_size=1)(net, task).state_dict()["weight"]
        matching = [label for label in (0, 1) if torch.allclose(found, by_hand(label), atol=1e-5)]
        assert len(matching) == 1
        drawn.add(matching[0])
    assert drawn == {0, 1}  # its own label, too


def test_images_are_augmented_as_those_of_the_original() -> None:
    def head(augment: Augment) -> torch.Tensor:
        task = toy_task(class_scenario(), recipe=replace(RECIPE, augment=augment))
        return head_of(SalUn(batch_size=32, epochs=1)(trained_net(), task)).weight.detach()

    assert not torch.equal(head("none"), head("crop"))


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_share_is_a_share(share: float) -> None:
    with pytest.raises(BadInput, match=r"share must be in \(0, 1\]"):
        SalUn(share=share)(trained_net(), toy_task(class_scenario()))
