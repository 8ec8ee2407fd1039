"""Models trained together are those trained one after another."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from duck.data.examples import Resident, examples
from duck.errors import BadInput
from duck.models import build
from duck.runtime import seeded
from duck.training import loop
from duck.training.stacked import train_stacked
from duck.types import Recipe
from tests.toys import toy_examples, toy_net

RECIPE = Recipe(
    epochs=2,
    batch_size=32,
    lr=0.05,
    schedule="cosine",
    weight_decay=1e-3,
    nesterov=True,
    augment="crop",
    label_smoothing=0.1,
)


def exact_data() -> Resident:
    """In float64: what rounding does to float32 Adam makes visible."""
    toy = toy_examples(240, seed=0)
    return examples(toy.images.double() / 100 - 1, toy.labels, toy.ids)


def nets(name: str) -> list[nn.Module]:
    return [
        (
            toy_net(index, dropout=0.0) if name == "toy" else build(name, 4, (1, 8, 8), index)
        ).double()
        for index in range(3)
    ]


@pytest.mark.parametrize("name", ["toy", "convnet"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_together_is_one_after_another(name: str, optimizer: str) -> None:
    recipe = replace(RECIPE, optimizer=optimizer)  # type: ignore[arg-type]
    apart, together, fresh = nets(name), nets(name), nets(name)
    parts = [
        exact_data().take(torch.randperm(240, generator=seeded(index))[:100]) for index in range(3)
    ]
    for index, (net, part) in enumerate(zip(apart, parts, strict=True)):
        loop.train(net, part, recipe, seeded(index, "train"))
    train_stacked(together, parts, recipe, [seeded(index, "train") for index in range(3)])
    for one, other, untrained in zip(apart, together, fresh, strict=True):
        for key, value in one.state_dict().items():
            torch.testing.assert_close(other.state_dict()[key], value)
            assert not torch.equal(value, untrained.state_dict()[key]), key


def test_epochs_of_different_length_cannot_go_together() -> None:
    parts = [exact_data().take(torch.arange(count)) for count in (96, 97)]
    with pytest.raises(BadInput, match="epochs of the same length"):
        train_stacked(nets("toy")[:2], parts, RECIPE, [seeded(0), seeded(1)])
    with pytest.raises(BadInput, match="3 models, 2 sets"):
        train_stacked(nets("toy"), parts, RECIPE, [seeded(0), seeded(1)])
