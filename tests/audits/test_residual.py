"""Residual memory by one retrained model: 0 for it, 1 for the original, both directions count."""

from functools import cache, partial

import pytest
import torch
from torch import Tensor, nn

import duck
from duck.audits.memory import ResidualMemory
from duck.models import build
from duck.retraining import Retraining
from duck.types import Recipe, Scenario

RECIPE = Recipe(epochs=20, batch_size=64, lr=0.1, nesterov=True)


class TooHard(nn.Module):
    """A model that is wrong on the exact forget images, and otherwise as another one."""

    def __init__(self, model: nn.Module, scenario: Scenario) -> None:
        super().__init__()
        self.model = model
        forget = scenario.data.train.take(scenario.forget)
        batch = next(forget.batches(len(forget)))
        self.images, self.labels = batch.images.flatten(1), batch.labels

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images).clone()
        matches = (images.flatten(1)[:, None] == self.images[None]).all(2)
        for row, place in matches.nonzero().tolist():
            logits[row, self.labels[place]] -= 20
        return logits


@cache
def models() -> tuple[Scenario, nn.Module, nn.Module]:
    data = duck.load("noisy-digits")
    original = duck.train("convnet", data, recipe=RECIPE)
    scenario = duck.ForgetFraction(0.2)(data)
    new_model = partial(build, "convnet", data.num_classes, data.train.shape)
    retrained = Retraining(scenario, original, new_model, RECIPE).load_or_train(0)
    return scenario, original, retrained


def test_the_original_has_all_and_the_retrained_model_nothing() -> None:
    scenario, original, retrained = models()
    memory = ResidualMemory(scenario, original, retrained)
    assert memory(original) == pytest.approx(1)
    assert memory(retrained) == 0


def test_samples_that_are_too_hard_count_too() -> None:
    scenario, original, retrained = models()
    with torch.no_grad():
        assert ResidualMemory(scenario, original, retrained)(TooHard(retrained, scenario)) > 1
