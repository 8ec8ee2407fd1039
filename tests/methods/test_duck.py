"""DUCK against numbers worked out by hand."""

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import duck
import duck.methods._training
from duck.data.examples import Resident, examples
from duck.errors import BadInput
from duck.methods._relabelling import label_loss
from duck.methods._stopping import (
    RankStopRule,
    costs_accuracy,
    make_stop_rule,
    mean_loss,
    unseen_loss,
)
from duck.methods.duck import Duck, FewSampleRates, class_centroids
from duck.methods.presets import default_recipe, preset
from duck.models.head import WithEmbedding, find_head
from duck.predict import accuracy, outcomes
from duck.runtime import evaluating, seeded
from duck.scenarios import ForgetClasses, ForgetFraction, ForgetSamples
from duck.training.batching import Batches, NestedBatches, ShuffledPass, Step
from duck.training.loop import Loss, fit
from duck.types import Batch, Recipe, Task
from tests.toys import (
    RECIPE,
    class_scenario,
    head_of,
    samples_scenario,
    toy_data,
    toy_task,
    trained_net,
)


class Plane(nn.Module):
    """Points of the plane are their own embeddings."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(2, classes)

    def forward(self, points: Tensor) -> Tensor:
        logits: Tensor = self.head(points)
        return logits


def points(rows: list[tuple[float, float]], labels: list[int]) -> Resident:
    return examples(
        torch.tensor(rows), torch.tensor(labels), np.array([str(i) for i in range(len(rows))])
    )


RETAIN = points([(2.0, 0.0), (4.0, 0.0), (0.0, 3.0), (-1.0, -1.0), (-3.0, -3.0)], [0, 0, 1, 3, 3])


def wrapped(model: nn.Module, images: Tensor) -> WithEmbedding:
    return WithEmbedding(model, find_head(model, images))


def plane_task(forget: Resident) -> tuple[WithEmbedding, Task]:
    return wrapped(Plane(4), torch.ones(8, 2)), Task(forget, RETAIN, None, 4)


def test_centroids_are_means_and_the_row_is_the_class() -> None:
    net, task = plane_task(points([(1.0, 1.0)], [2]))
    centroids, present = class_centroids(net, task.retain, 4, Recipe())
    assert centroids[[0, 1, 3]].tolist() == [[3.0, 0.0], [0.0, 3.0], [-2.0, -2.0]]
    assert present.tolist() == [True, True, False, True]


def test_centroids_of_many_samples_are_exact() -> None:
    # Three batches of a thousand, summed to 2**24, 1 and 1: in single precision the ones would be
    # lost.
    rows = torch.zeros(3000, 2)
    rows[[0, 1000, 2000], 0] = torch.tensor([2.0**24, 1.0, 1.0])
    retain = examples(rows, torch.zeros(3000, dtype=torch.int64), np.arange(3000).astype(str))
    centroids, _ = class_centroids(wrapped(Plane(2), torch.ones(8, 2)), retain, 2, Recipe())
    assert centroids.tolist() == [[np.float32((2**24 + 2) / 3000), 0.0], [0.0, 0.0]]


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that was made inside."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.elements = max(
            [
                self.elements,
                *(each.numel() for each in tree_leaves(made) if isinstance(each, Tensor)),
            ]
        )
        return made


def test_the_search_for_the_nearest_takes_no_room_for_every_pair_of_embeddings() -> None:
    classes, width, count = 60, 50, 100
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(count, width, generator=generator), torch.arange(count) % classes
    forget = examples(images, labels, np.arange(count).astype(str))
    retain = examples(
        torch.randn(classes, width, generator=generator),
        torch.arange(classes),
        np.arange(classes).astype(str),
    )
    net = wrapped(nn.Linear(width, classes), images[:8])
    with Largest() as largest:  # type: ignore[no-untyped-call]
        targets = Duck()._targets(net, Task(forget, retain, None, classes))
    # The embeddings, their closeness to each class: not the three at once.
    assert largest.elements <= count * max(classes, width)
    closeness = torch.cosine_similarity(images.unsqueeze(1), retain.images, dim=-1)
    closeness[torch.arange(count), labels] = -1
    assert torch.equal(targets, retain.images[closeness.argmax(1)])


def test_the_nearest_wrong_centroid_by_cosine_for_each_row() -> None:
    # Class 2 has no retain samples; a sample of class 0 may not go to centroid 0 though it lies on
    # it; (9, 10) is nearer in angle to class 1 whatever its length.
    forget = points([(5.0, 1.0), (9.0, 10.0), (-1.0, -1.1), (1.0, 0.0)], [2, 2, 2, 0])
    net, task = plane_task(forget)
    targets = Duck()._targets(net, task)
    assert targets.tolist() == [[3.0, 0.0], [0.0, 3.0], [-2.0, -2.0], [0.0, 3.0]]


def test_a_class_without_retain_samples_is_no_target_however_far_the_others_are() -> None:
    retain = points([(3.0, 0.0), (0.0, 3.0)], [0, 1])
    task = Task(points([(-1.0, -2.0), (-2.0, -1.0)], [2, 2]), retain, None, 4)
    assert Duck()._targets(wrapped(Plane(4), torch.ones(8, 2)), task).tolist() == [
        [3.0, 0.0],
        [0.0, 3.0],
    ]


def test_target_class_sends_all_to_one_centroid() -> None:
    net, task = plane_task(points([(5.0, 1.0), (1.0, 5.0)], [2, 2]))
    assert Duck(target_class=3)._targets(net, task).tolist() == [[-2.0, -2.0]] * 2
    with pytest.raises(BadInput, match="target_class 2 has no"):
        Duck(target_class=2)._targets(net, task)


def test_no_other_class_to_go_to() -> None:
    only = points([(1.0, 0.0)], [0])
    net = wrapped(Plane(2), torch.ones(8, 2))
    with pytest.raises(BadInput, match="at least two classes"):
        Duck()._targets(net, Task(points([(1.0, 1.0)], [0]), only, None, 2))


def test_the_loss_is_the_weighted_sum_of_eq_3_and_4() -> None:
    net = wrapped(Plane(2), torch.ones(8, 2))
    head = head_of(net.model)
    with torch.no_grad():
        head.weight.copy_(torch.eye(2))
        head.bias.zero_()
    targets = torch.tensor([[0.0, 5.0], [1.0, 0.0]])
    forget = Batch(
        torch.tensor([[3.0, 0.0], [1.0, 1.0]]), torch.tensor([0, 0]), torch.tensor([1, 0])
    )
    retain = Batch(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), torch.tensor([0]))
    # Row 1 is drawn first: (3, 0) against (1, 0) is 0 apart; (1, 1) against (0, 5) is 1 - cos 45
    # degrees.
    pull = (0 + 1 - math.cos(math.pi / 4)) / 2
    keep = math.log(1 + math.exp(-2.0 / 2.0))
    step = {"forget": forget, "retain": retain}
    duck = Duck(lambda_forget=1.5, lambda_retain=0.5, temperature=2.0)
    assert duck.loss(targets, 1.0)(net, step).item() == pytest.approx(
        1.5 * pull + 0.5 * keep, rel=1e-5
    )
    assert duck.loss(targets, 0.1)(net, step).item() == pytest.approx(
        0.15 * pull + 0.5 * keep, rel=1e-5
    )
    assert replace(duck, forget_loss=False).loss(targets, 1.0)(net, step).item() == pytest.approx(
        0.5 * keep, rel=1e-5
    )
    assert replace(duck, retain_loss=False).loss(targets, 1.0)(net, step).item() == pytest.approx(
        1.5 * pull, rel=1e-5
    )


def test_two_forward_passes_normalise_each_batch_by_itself_in_the_first_phase_alone() -> None:
    """On a net with BatchNorm; and label smoothing, by hand: a tenth of the loss is the mean over
    both classes."""
    seen: list[int] = []
    net = wrapped(Plane(2), torch.ones(8, 2))
    net.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    forget = Batch(
        torch.tensor([[3.0, 0.0], [1.0, 1.0]]), torch.tensor([0, 0]), torch.tensor([1, 0])
    )
    retain = Batch(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), torch.tensor([0]))
    targets, step = torch.tensor([[0.0, 5.0], [1.0, 0.0]]), {"forget": forget, "retain": retain}
    joint, two = (
        Duck().loss(targets, 1.0, joint=together)(net, step).item() for together in (True, False)
    )
    assert seen == [3, 2, 1]
    assert joint == pytest.approx(two, rel=1e-5)  # without BatchNorm it is the same
    head = head_of(net.model)
    with torch.no_grad():
        head.weight.copy_(torch.eye(2))
        head.bias.zero_()
    smooth = Duck(forget_loss=False, lambda_retain=1.0, temperature=2.0, label_smoothing=0.2).loss(
        targets, 1.0
    )(net, step)
    right, wrong = math.log(1 + math.exp(-1.0)), math.log(1 + math.exp(1.0))
    assert smooth.item() == pytest.approx(0.9 * right + 0.1 * wrong, rel=1e-5)


def test_whether_passes_are_joint_changes_the_result() -> None:
    task, method = (
        toy_task(class_scenario()),
        Duck(batch_size=64, lr=3e-3, low_batch=32, max_epochs=1),
    )
    joint, two = (
        head_of(replace(method, joint_forward=flag)(trained_net(), task)).weight
        for flag in (True, False)
    )
    assert not torch.equal(joint, two)


def test_a_forget_batch_meets_fresh_retain_batches() -> None:
    forget, retain = (
        toy_data().train.take(torch.arange(10)),
        toy_data().train.take(torch.arange(10, 70)),
    )
    steps = list(
        NestedBatches(forget, retain, size=8, ratio=3).epoch(torch.Generator().manual_seed(0))
    )
    assert len(steps) == len(NestedBatches(forget, retain, 8, 3)) == 6
    assert all(
        torch.equal(step["forget"].rows, steps[3 * (i // 3)]["forget"].rows)
        for i, step in enumerate(steps)
    )
    assert set(torch.cat([step["forget"].rows for step in steps]).tolist()) == set(range(10))
    # Six batches of 8 out of 60: nothing comes twice within a pass.
    assert len(torch.cat([step["retain"].rows for step in steps]).unique()) == 48


def test_without_the_forget_loss_less_is_forgotten_and_without_the_retain_loss_less_is_kept() -> (
    None
):
    scenario = class_scenario()
    task = toy_task(scenario)
    duck = Duck(batch_size=64, lr=3e-3, low_batch=32, max_epochs=1)
    whole, keeps, pulls = (
        method(trained_net(), task)
        for method in (duck, replace(duck, forget_loss=False), replace(duck, retain_loss=False))
    )
    assert mean_loss(keeps, task.forget, task) < 0.5 * mean_loss(whole, task.forget, task)
    assert mean_loss(pulls, task.retain, task) > 1.5 * mean_loss(whole, task.retain, task)


def test_the_low_forget_phase_has_its_own_weight_rate_and_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losses, recipes, steps, found = list[Loss](), list[Recipe](), list[Step](), list[float]()

    def watched(
        net: nn.Module, batches: Batches, loss: Loss, recipe: Recipe, *args: Any, **rest: Any
    ) -> Any:
        losses.append(loss)
        recipes.append(recipe)
        steps.append(next(iter(batches.epoch(torch.Generator().manual_seed(0)))))
        with evaluating(net):
            found[:] = [each(net, steps[-1]).item() for each in losses]
        return fit(net, batches, loss, recipe, *args, **rest)

    monkeypatch.setattr(duck.methods._training, "fit", watched)
    method = Duck(
        lr=4e-3,
        batch_size=64,
        max_epochs=1,
        low_epochs=1,
        low_forget=0.25,
        low_lr=0.5,
        low_batch=7,
        retain_loss=False,
    )
    method(trained_net(), toy_task(class_scenario()))
    assert [(recipe.lr, recipe.schedule) for recipe in recipes] == [
        (4e-3, "constant"),
        (2e-3, "cosine"),
    ]
    assert [(len(step["forget"].rows), len(step["retain"].rows)) for step in steps] == [
        (60, 64),
        (7, 64),
    ]
    # Both phases' losses of the same step and weights.
    assert found[1] == pytest.approx(0.25 * found[0], rel=1e-5)
    assert found[0] > 0.01


def test_many_removed_classes_get_one_step_a_batch_and_those_that_stay_do_not_count() -> None:
    duck = Duck(batch_ratio=5, many_classes=2)
    ratios = [
        duck.steps_per_forget_batch(ForgetClasses(classes)(toy_data()).task())
        for classes in ([0], [0, 1], [0, 1, 2])
    ]
    assert ratios == [5, 1, 1]
    assert duck.steps_per_forget_batch(samples_scenario().task()) == 5
    assert Duck().steps_per_forget_batch(ForgetClasses([0, 1, 2])(toy_data()).task()) == 5


def test_the_class_stop_rule_waits_for_the_tolerance() -> None:
    scenario, model = class_scenario(), trained_net()
    enough = make_stop_rule(model, toy_task(scenario))
    assert not enough()
    with torch.no_grad():
        head_of(model).bias[2] = -100.0
    assert enough()


def test_the_samples_stop_rule_compares_with_the_originals_holdout_accuracy() -> None:
    scenario, model = ForgetFraction(0.9)(toy_data()), trained_net()
    task = toy_task(scenario)
    assert len(task.forget) >= 200
    assert task.holdout is not None
    target = accuracy(model, task.holdout)
    enough = make_stop_rule(model, task)
    assert enough() == (accuracy(model, task.forget) < target)
    with torch.no_grad():
        head_of(model).bias[2] = -100.0
    assert accuracy(model, task.forget) < target
    assert enough()


def test_no_sample_of_a_forgotten_class_may_be_remembered() -> None:
    # All 60 of class 2, 20 of the 60 of class 1: only a quarter may be as good as unseen.
    ids = [str(row) for row in (*range(2, 240, 4), *range(1, 81, 4))]
    task, model = toy_task(ForgetSamples(ids)(toy_data())), trained_net()
    enough, lenient = (
        make_stop_rule(model, task, "accuracy"),
        make_stop_rule(model, task, "accuracy", tolerance=0.8),
    )
    with torch.no_grad():
        head_of(model).bias[1] = -100.0
    assert 0.7 < accuracy(model, task.forget) <= 0.75
    assert not enough()
    assert lenient()  # below the tolerance is always enough
    with torch.no_grad():
        head_of(model).bias[2] = -100.0
    assert enough()


def test_many_samples_can_stop_at_the_mean_loss_of_unseen_ones_of_the_same_classes() -> None:
    task, model = toy_task(ForgetFraction(0.9)(toy_data())), trained_net()
    assert task.holdout is not None
    labels = task.holdout.labels
    losses = torch.nn.functional.cross_entropy(
        model(next(task.holdout.batches(1000)).images), labels, reduction="none"
    ).detach()
    shares = task.forget.labels.bincount(minlength=4) / len(task.forget)
    expected = sum(shares[label] * losses[labels == label].mean() for label in range(4))
    assert unseen_loss(model, task.holdout, task) == pytest.approx(float(expected), rel=1e-5)
    assert make_stop_rule(model, task, "loss")() == (
        mean_loss(model, task.forget, task) >= float(expected)
    )


def threshold_task(
    forget: list[float], retain: list[float], unseen: list[float]
) -> tuple[nn.Linear, Task]:
    """Samples of class 0 with one number each; the loss of a sample falls with its number, and
    rises with the net's bias."""
    net = nn.Linear(1, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0], [0.0]]))
        net.bias.zero_()
    kept = one_number([*retain, -9.0], [0] * len(retain) + [1])
    return net, Task(one_number(forget), kept, one_number(unseen), 2)


def one_number(values: list[float], labels: list[int] | None = None) -> Resident:
    numbers = torch.tensor(values).view(-1, 1)
    return examples(
        numbers,
        torch.tensor(labels or [0] * len(values)),
        np.array([f"{len(values)}-{i}" for i in range(len(values))]),
    )


def test_few_samples_are_to_be_as_hard_among_unseen_samples_as_among_training_samples() -> None:
    tens = [float(number) for number in range(10)]
    # 4.5 is harder than five of ten training samples (larger numbers), 8.5 than one: but no rank
    # below 0.2 is asked for.
    net, task = threshold_task([4.5, 8.5], tens, [number + 0.1 for number in tens])
    rule = make_stop_rule(net, task)
    assert isinstance(rule, RankStopRule)
    assert rule.target_ranks.tolist() == [0.5, 0.2]
    assert rule.active.tolist() == [1, 1]
    # Among the unseen ones 4.5 has its rank, 8.5 lacks a tenth.
    assert not rule()
    assert rule.active.tolist() == [0, 1]
    assert (rule.is_met, rule.overshot) == (False, False)


def test_a_step_that_makes_a_sample_too_hard_is_taken_back() -> None:
    net, task = threshold_task(
        [4.5], [float(number) for number in range(10)], [5.0 + number for number in range(10)]
    )
    rule = make_stop_rule(net, task)
    assert isinstance(rule, RankStopRule)
    before = net.weight.detach().clone()
    with torch.no_grad():
        net.weight.mul_(-1)  # now the smallest number has the lowest loss
    assert rule()  # ends the round
    assert (rule.is_met, rule.overshot) == (False, True)
    assert torch.equal(net.weight, before)


def test_a_step_that_costs_holdout_accuracy_is_taken_back() -> None:
    net, task = threshold_task(
        [4.5],
        [float(number) for number in range(10)],
        [float(number) + 0.1 for number in range(10)],
    )
    rule = make_stop_rule(net, task)
    assert isinstance(rule, RankStopRule)
    with torch.no_grad():
        net.bias[1] = 4.0  # 0.1 to 3.1 are called class 1; the ranks are as they were
    assert rule()
    assert rule.overshot
    assert net.bias.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("lost", "gained", "costs"),
    [(3, 0, False), (4, 0, True), (10, 6, False), (12, 6, True), (0, 5, False)],
)
def test_predictions_that_flip_both_ways_are_no_loss_of_accuracy(
    lost: int, gained: int, costs: bool
) -> None:
    before = torch.tensor([True] * 300 + [False] * 300)
    after = before.clone()
    after[:lost] = False
    after[300 : 300 + gained] = True
    assert costs_accuracy(before, after) == costs


@pytest.mark.slow
def test_single_samples_end_among_the_unseen_ones() -> None:
    """The losses of forgotten samples lie inside those of test samples of their class, and the test
    accuracy stays."""
    data = duck.load("digits")
    model = duck.train("convnet", data, 0, default_recipe("digits", len(data.train), data.augment))
    assert data.test is not None
    inside, lost = [], []
    for seed in range(6):
        name = str(
            data.train.ids[int(torch.randint(len(data.train), (), generator=seeded(seed, "few")))]
        )
        scenario = ForgetSamples([name])(data, seed)
        unlearned = preset("duck", "digits", "samples")(model, scenario.task(recipe=RECIPE))
        test = data.test.take(scenario.test)
        losses = outcomes(unlearned, test).losses[test.labels == data.train.labels[scenario.forget]]
        own = outcomes(unlearned, data.train.take(scenario.forget)).losses
        inside.append(0.05 <= float((losses < own).double().mean()) <= 0.95)
        lost.append(accuracy(model, test) - accuracy(unlearned, test))
    assert sum(inside) >= 5
    assert max(lost) <= 0.01


def test_the_rate_for_few_samples_rises_until_a_step_went_too_far_and_then_falls() -> None:
    rates = FewSampleRates(9.0)
    assert [rates.update(overshot) for overshot in (False, False, True, False, True)] == [
        27.0,
        81.0,
        27.0,
        27.0,
        9.0,
    ]


def test_the_stop_rule_holds_for_the_model_that_is_returned() -> None:
    """Retain samples at a high rate teach samples of the same classes again: the phase is repeated
    with the forget loss or left out."""
    task, notes = toy_task(samples_scenario()), list[str]()
    assert task.holdout is not None
    target = accuracy(trained_net(), task.holdout)
    method = Duck(
        lambda_retain=0.02,
        batch_size=64,
        lr=3e-3,
        low_batch=32,
        low_forget=0.0,
        low_lr=3.0,
        low_epochs=8,
        stop="accuracy",
    )
    alone = replace(method, low_epochs=0)(trained_net(), task)
    assert accuracy(alone, task.forget) < target
    unlearned = method(trained_net(), replace(task, note=notes.append))
    assert accuracy(unlearned, task.forget) < target
    # One phase without the forget loss, as it is asked for, would have brought them back.
    again = copy.deepcopy(alone)
    retain = ShuffledPass("retain", task.retain, 64)
    recipe = replace(
        RECIPE, optimizer="adam", lr=9e-3, weight_decay=5e-4, schedule="cosine", epochs=8
    )
    fit(again, retain, label_loss, recipe, seeded(0, "again"))
    assert accuracy(again, task.forget) >= target
    # A repetition that forgets adds no note; without one the weights are those of one phase.
    assert ["low-forget phase was omitted" in note for note in notes] in ([], [True])
    assert bool(notes) == same_weights(unlearned, alone)


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(
        torch.equal(a, b)
        for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_without_unseen_data_few_samples_become_as_hard_as_the_hardest_retain_samples() -> None:
    task, model = (
        replace(toy_task(ForgetSamples(["1", "5"])(toy_data())), holdout=None),
        trained_net(),
    )
    rule = make_stop_rule(model, task)
    assert isinstance(rule, RankStopRule)
    assert rule.target_ranks.tolist() == [0.95, 0.95]
    unlearned = Duck(batch_size=64, lr=3e-3, low_batch=32)(model, task)
    before, after = outcomes(model, task.forget), outcomes(unlearned, task.forget)
    assert (after.losses > before.losses).all()
    assert torch.equal(after.correct, before.correct)
    retain = task.retain.take((task.retain.labels == 1).nonzero().flatten())
    assert (after.losses.mean() > outcomes(unlearned, retain).losses.quantile(0.9)).item()


def test_without_unseen_data_a_step_that_misclassifies_a_sample_is_taken_back() -> None:
    net, task = threshold_task([4.5], [float(number) for number in range(10)], [1.0])
    rule = make_stop_rule(net, replace(task, holdout=None))
    assert isinstance(rule, RankStopRule)
    before = net.weight.detach().clone()
    with torch.no_grad():
        net.weight.mul_(-1)
    assert rule()
    assert (rule.is_met, rule.overshot) == (False, True)
    assert torch.equal(net.weight, before)


def test_samples_that_the_rule_cannot_judge_are_noted() -> None:
    """The loss of a memorised wrong label can be like that of unseen samples before anything is
    done."""
    notes: list[str] = []
    tens = [float(number) for number in range(10)]
    net, task = threshold_task([4.5, 0.5], tens, [number + 6.0 for number in tens])
    make_stop_rule(net, replace(task, note=notes.append))
    assert [note.split(" forget samples")[0] for note in notes] == ["2 of 2"]
    net, task = threshold_task([4.5, 3.5], tens, [number - 6.0 for number in tens])
    notes.clear()
    make_stop_rule(net, replace(task, note=notes.append))
    assert notes == []


def test_mislabelled_samples_must_lose_their_label_though_the_class_stays() -> None:
    task, model = toy_task(samples_scenario()), trained_net()
    assert not make_stop_rule(model, task, mislabelled=True)()


def test_the_phases_are_reported_in_order_and_the_stop_rule_ends_the_first() -> None:
    heard: list[tuple[str, int]] = []
    task = toy_task(
        class_scenario(),
        report=lambda news: heard.append((news.phase, news.epoch)) if news.is_epoch_end else None,
    )
    Duck(batch_size=64, lr=3e-3, low_batch=32)(trained_net(), task)
    phases = [phase for phase, _ in heard]
    assert phases == sorted(phases, key=["high-forget", "low-forget"].index)
    assert phases.count("low-forget") == 2
    assert phases.count("high-forget") < 10
    assert RECIPE.epochs == 12
