"""How the details of three rivals decide what they do: the authors' rules against plausible other
ones, on digits."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import duck
from duck.methods import NegGradPlus, RandomLabel, SalUn
from duck.methods._relabelling import RelabelledBatches, fixed_labels, label_loss
from duck.methods.base import clone
from duck.methods.presets import default_recipe
from duck.predict import accuracy, outcomes
from duck.runtime import seeded
from duck.scenarios import ForgetFraction
from duck.training.batching import Batches, JoinedBatches, MixedBatches, ShuffledPass, Step
from duck.training.loop import Loss, Masks, fit
from duck.types import Data, Recipe, Scenario, Task

pytestmark = pytest.mark.slow


@cache
def digits() -> tuple[Data, nn.Module, Recipe]:
    data = duck.load("digits")
    recipe = default_recipe("digits", len(data.train), data.augment)
    return data, duck.train("convnet", data, 0, recipe), recipe


def tenth() -> tuple[Scenario, Task]:
    data, _, recipe = digits()
    scenario = ForgetFraction(0.1)(data)
    return scenario, scenario.task(recipe=recipe)


def fixed_wrong_labels(task: Task) -> Tensor:
    """One label for each forget sample, for all epochs, that is not its own."""
    away = torch.randint(1, task.num_classes, (len(task.forget),), generator=seeded(0, "wrong"))
    return (task.forget.labels + away) % task.num_classes


def sgd(recipe: Recipe, lr: float, epochs: int) -> Recipe:
    return replace(
        recipe,
        optimizer="sgd",
        lr=lr,
        momentum=0.9,
        nesterov=False,
        weight_decay=5e-4,
        schedule="constant",
        epochs=epochs,
    )


def trained(batches: Batches, loss: Loss, recipe: Recipe, masks: Masks | None = None) -> nn.Module:
    model = clone(digits()[1])
    fit(model, batches, loss, recipe, seeded(0, "effect"), masks=masks)
    return model


def test_salun_memorises_wrong_labels_where_they_are_fixed_and_mixed_with_the_retain_samples() -> (
    None
):
    data, original, recipe = digits()
    _, task = tenth()
    assert data.test is not None
    theirs = SalUn(lr=0.013, epochs=20, batch_size=64)
    labels = torch.cat([fixed_wrong_labels(task), task.retain.labels])

    def loss(net: nn.Module, step: Step) -> Tensor:
        return cross_entropy(net(step["mixed"].images), labels[step["mixed"].rows])

    masks = theirs.prepare(original, task)
    other = trained(MixedBatches(task.forget, task.retain, 64), loss, sgd(recipe, 0.013, 20), masks)
    model = theirs(original, task)
    # With four seeds of the original: 94 to 97 % by the authors' rule, 14 to 27 % by the other.
    assert accuracy(model, task.forget) >= 0.85
    assert accuracy(model, data.test) >= 0.96
    assert accuracy(other, task.forget) <= 0.5


def test_random_label_memorises_labels_where_they_are_fixed() -> None:
    _, original, recipe = digits()
    _, task = tenth()
    wrong = fixed_wrong_labels(task)
    theirs = RandomLabel(lr=1e-2, batch_size=64, max_epochs=40, tolerance=0.0, stop="accuracy")
    forget = RelabelledBatches(ShuffledPass("forget", task.forget, 64), fixed_labels(wrong))

    def memorised(model: nn.Module) -> float:
        return float((outcomes(model, task.forget).predicted == wrong).double().mean())

    # With four seeds of the original: 99 to 100 % of the fixed labels, 14 to 16 % of fresh ones; a
    # tenth by chance.
    assert memorised(trained(forget, label_loss, sgd(recipe, 1e-2, 40))) >= 0.9
    assert memorised(theirs(original, replace(task, holdout=None))) <= 0.25


def test_neg_grad_plus_loses_the_retained_classes_with_momentum_and_one_forward_pass() -> None:
    data, original, recipe = digits()
    task = duck.ForgetClasses([3])(data).task(recipe=recipe)
    theirs = NegGradPlus(alpha=0.95, batch_size=32)(original, task)

    def joint(net: nn.Module, step: Step) -> Tensor:
        forget, retain = step["forget"], step["retain"]
        logits = net(torch.cat([forget.images, retain.images]))
        count = len(forget.labels)
        return 0.95 * cross_entropy(logits[count:], retain.labels) - 0.05 * cross_entropy(
            logits[:count], forget.labels
        )

    other = trained(JoinedBatches(task.forget, task.retain, 32, 32), joint, sgd(recipe, 1e-2, 10))
    assert accuracy(theirs, task.forget) <= 0.01
    assert accuracy(theirs, task.retain) >= 0.97
    assert accuracy(other, task.retain) <= 0.6
