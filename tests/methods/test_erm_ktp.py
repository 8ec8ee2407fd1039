"""ERM-KTP against numbers worked out by hand."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.methods.erm_ktp import (
    AlternatingBatches,
    ErmKtp,
    FeatureMap,
    MaskedModel,
    class_channels,
    find_feature_map,
    normalised,
    transfer_loss,
)
from duck.models import build
from duck.training.batching import MixedBatches
from duck.types import Progress
from tests.toys import class_scenario, head_of, samples_scenario, toy_net, toy_task, trained_net

SMALL = ErmKtp(
    epochs=2,
    milestones=(),
    batch_size=32,
    original_epochs=3,
    original_milestones=(),
    original_batch=32,
)


def test_the_regulariser_counts_entries_beyond_the_allowance_and_channels_that_classes_share() -> (
    None
):
    # Two channels, three classes. Sum 3.5, allowance 0.5 x 6 = 3. Pairs: channel 0: 1 x 0.5 + 1 x 1
    # + 0.5 x 1 = 2; channel 1: 0.
    mask = torch.tensor([[1.0, 0.5, 1.0], [0.0, 1.0, 0.0]])
    method = ErmKtp(mask_weight=10.0, mask_density=0.5, mask_overlap=0.25)
    assert method.regulariser(mask).item() == pytest.approx(10 * (0.5 + 0.25 * 2))
    assert replace(method, mask_density=0.9).regulariser(mask).item() == pytest.approx(
        10 * 0.25 * 2
    )


def test_each_channel_is_scaled_to_its_largest_entry() -> None:
    assert normalised(torch.tensor([[0.25, 0.5], [-1.0, 2.0], [-1.0, -2.0]])).tolist() == [
        [0.5, 1.0],
        [0.0, 1.0],
        [0.0, 0.0],
    ]


def test_every_channel_with_a_mask_above_0_for_a_forgotten_class_is_removed() -> None:
    mask = torch.tensor([[1.0, 0.2, 0.1], [0.0, 1.0, 0.0], [0.001, 1.0, 0.9], [0.0, 0.0, 1.0]])
    assert class_channels(mask, torch.tensor([0])).tolist() == [True, False, True, False]
    assert class_channels(mask, torch.tensor([0, 1])).tolist() == [True, True, True, False]


def test_the_transfer_loss_wants_the_whole_map_and_the_pooled_rest() -> None:
    maps, wanted = torch.zeros(1, 2, 1, 2), torch.tensor([[[[2.0, 4.0]], [[1.0, 3.0]]]])
    removed = torch.tensor([True, False])
    # Map: (4 + 16 + 1 + 9) / 4. Pooled without channel 0: mean (0, 2), maximum (0, 3).
    assert transfer_loss(maps, wanted, removed, "mean").item() == pytest.approx(7.5 + 4 / 2)
    assert transfer_loss(maps, wanted, removed, "maximum").item() == pytest.approx(7.5 + 9 / 2)


class Pooled(nn.Module):
    """One map of two channels, its mean, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Identity()
        self.head = nn.Linear(2, 2)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.map(images).mean((2, 3)))
        return logits


def test_the_mask_gates_each_sample_by_its_own_label() -> None:
    net = Pooled()
    with torch.no_grad():
        net.head.weight.copy_(torch.eye(2))
        net.head.bias.zero_()
    with MaskedModel(net, FeatureMap("map", "mean", 2, "head"), 2) as masked:
        with torch.no_grad():
            masked.mask.copy_(torch.tensor([[2.0, 1.0], [0.0, 1.0]]))
        images = torch.tensor([3.0, 7.0]).view(1, 2, 1, 1).expand(2, 2, 4, 4)
        logits, mask = masked(images, torch.tensor([0, 1]))
        assert mask.tolist() == [[1.0, 0.5], [0.0, 1.0]]
        assert logits.tolist() == [[3.0, 0.0], [1.5, 7.0]]
        assert masked(images)[0].tolist() == [[3.0, 7.0], [3.0, 7.0]]
    assert not net.map._forward_hooks


def test_every_third_epoch_is_masked() -> None:
    task = toy_task(class_scenario())
    plan = AlternatingBatches(MixedBatches(task.forget, task.retain, 120), 3)
    names = [{name for step in plan.epoch(torch.Generator()) for name in step} for _ in range(6)]
    assert names == [{"plain"}, {"plain"}, {"masked"}] * 2
    assert len(plan) == 2


def test_the_last_map_is_found_before_the_pooling() -> None:
    task = toy_task(class_scenario())
    assert find_feature_map(trained_net(), task) == FeatureMap(
        "blocks.outer.1", "maximum", 12, "head"
    )
    # The pooled map of one pixel comes later, but the one before it says more.
    assert find_feature_map(build("convnet", 4, (1, 8, 8), 0).eval(), task) == FeatureMap(
        "features.10", "mean", 64, "head"
    )
    assert find_feature_map(build("resnet18", 4, (1, 8, 8), 0).eval(), task) == FeatureMap(
        "blocks", "mean", 512, "head"
    )


def test_the_student_has_the_masked_originals_head_without_the_forgotten_class() -> None:
    model, task = trained_net(), toy_task(class_scenario())
    prepared = SMALL.prepare(model, task)
    removed = class_channels(prepared["mask"], torch.tensor([2]))
    expected = prepared["net.head.weight"].clone()
    expected[2], expected[:, removed] = 0, 0
    head = head_of(SMALL(model, replace(task, prepared=prepared)))
    assert torch.equal(head.weight, expected)
    assert head.bias[2] == 0
    assert torch.equal(head.bias[[0, 1, 3]], prepared["net.head.bias"][[0, 1, 3]])
    assert head.weight.requires_grad


def test_the_masked_original_is_trained_first_and_the_given_one_is_not_used() -> None:
    heard: list[tuple[str, int]] = []

    def report(news: Progress) -> None:
        if news.is_epoch_end:
            heard.append((news.phase, news.epoch))

    task = toy_task(class_scenario(), report=report)
    student = SMALL(trained_net(), task).state_dict()
    masked = [("masked original", epoch) for epoch in (1, 2, 3)]
    assert heard == [*masked, ("transfer", 1), ("transfer", 2)]
    # What is prepared is not trained again, and another model gives the same student.
    heard.clear()
    prepared = SMALL.prepare(trained_net(), task)
    assert heard == masked
    heard.clear()
    other = SMALL(toy_net(seed=5).eval(), replace(task, prepared=prepared)).state_dict()
    assert heard == [("transfer", 1), ("transfer", 2)]
    assert all(torch.equal(other[name], value) for name, value in student.items())


def test_the_regulariser_sparsifies_the_mask() -> None:
    model, task = trained_net(), toy_task(class_scenario())
    dense, sparse = (
        replace(SMALL, mask_weight=weight, original_epochs=6).prepare(model, task)["mask"]
        for weight in (0.0, 0.5)
    )
    # Few steps here, and the regulariser counts in a third of them, so a heavy weight. The largest
    # entry of each channel is 1 in any case.
    assert dense.mean() > 0.85
    assert sparse.mean() < 0.5
    assert torch.equal(sparse.amax(1), torch.ones(12))


def test_the_regulariser_counts_in_masked_epochs_alone() -> None:
    """Two epochs are not masked, so the mask has no gradient at all; the third is."""
    model, task = trained_net(), toy_task(class_scenario())
    plain, masked = (
        replace(SMALL, mask_weight=5.0, original_epochs=epochs).prepare(model, task)["mask"]
        for epochs in (2, 3)
    )
    assert torch.equal(plain, torch.ones(12, 4))
    assert masked.mean() < 0.9


def test_the_schedule_of_the_transfer_starts_after_some_epochs() -> None:
    model, task = trained_net(), toy_task(class_scenario())
    prepared = SMALL.prepare(model, task)

    def student(schedule_start: int, epochs: int = 3) -> Tensor:
        method = replace(
            SMALL,
            decay=0.0,
            weight_decay=0.0,
            epochs=epochs,
            milestones=(1,),
            schedule_start=schedule_start,
        )
        weight: Tensor = method(model, replace(task, prepared=prepared)).state_dict()[
            "blocks.outer.0.conv.weight"
        ]
        return weight

    # The rate falls to 0 after one epoch of the schedule: what comes later changes no weight.
    assert torch.equal(student(0), student(0, epochs=1))
    assert torch.equal(student(1), student(1, epochs=2))
    assert not torch.equal(student(0), student(1))


def test_a_mask_without_free_channels_is_noted() -> None:
    model, notes = trained_net(), list[str]()
    task = toy_task(class_scenario())
    prepared = {**SMALL.prepare(model, task), "mask": torch.ones(12, 4)}
    SMALL(model, replace(task, prepared=prepared, note=notes.append))
    assert "the result is useless" in notes[0]


def test_what_it_cannot_do() -> None:
    task = toy_task(class_scenario())
    with pytest.raises(BadInput, match="can only forget whole classes"):
        SMALL(trained_net(), toy_task(samples_scenario()))
    with pytest.raises(BadInput, match="pass new_model="):
        SMALL(trained_net(), replace(task, new_model=None))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 4))
    with pytest.raises(BadInput, match="mean or maximum"):
        SMALL(flat, replace(task, new_model=toy_net))
