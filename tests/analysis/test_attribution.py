"""SHAP values against a closed form, and that they add up or say so."""

import sys

import pytest
import torch
from torch import Tensor, nn

from duck.analysis import attribution
from duck.analysis.attribution import (
    IncompleteAttribution,
    background_of,
    images_of,
    images_per_pass,
    shap_values,
)
from duck.errors import BadInput, MissingExtra
from tests.toys import toy_data, trained_net


class TwoClasses(nn.Module):
    """Logits (w·x, 0): the probability of class 0 is a sigmoid along any line."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights)

    def forward(self, images: Tensor) -> Tensor:
        score = (images * self.weights).flatten(1).sum(1)
        return torch.stack([score, torch.zeros_like(score)], 1)


def test_values_of_a_sigmoid_in_closed_form() -> None:
    generator = torch.Generator().manual_seed(0)
    weights, images, background = (torch.randn(n, 2, 3, 3, generator=generator) for n in (1, 5, 4))
    model = TwoClasses(weights[0])
    found = shap_values(
        model, images, torch.tensor([0, 1, 0, 1, 0]), background, steps=256, tolerance=1e-3
    )
    expected = torch.zeros_like(images)
    for b in background:
        up = (weights * (images - b)).flatten(1).sum(1)
        start = (weights * b).sum()
        slope = (torch.sigmoid(start + up) - torch.sigmoid(start)) / up
        expected += weights * (images - b) * slope.view(-1, 1, 1, 1) / len(background)
    expected[[1, 3]] *= -1
    assert torch.allclose(found.values, expected, atol=1e-4)
    assert torch.allclose(found.maps, expected.sum(1), atol=2e-4)


def test_values_of_a_trained_net_sum_to_what_they_explain_and_leave_it_alone() -> None:
    data, model = toy_data(), trained_net().train()
    model.get_submodule("blocks.outer.0").eval()
    assert data.test is not None
    images, background = (
        images_of(data.test.take(torch.arange(6))),
        background_of(data.train, seed=1, count=3),
    )
    found = shap_values(model, images, data.test.labels[:6], background, steps=4)
    model.eval()
    with torch.no_grad():
        logits = [
            model(part).double().softmax(1)[:, data.test.labels[:6]]
            for part in (images, background)
        ]
    assert torch.allclose(found.outputs, logits[0].diagonal(), atol=1e-6)
    assert torch.allclose(found.base, logits[1].mean(0), atol=1e-6)
    assert (
        (found.values.double().sum((1, 2, 3)) - (found.outputs - found.base)).abs() < 0.01
    ).all()
    assert found.complete.all()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_big_images_go_through_in_smaller_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [
        images_per_pass(torch.empty(1, *shape))
        for shape in ((3, 32, 32), (3, 224, 224), (3, 4000, 4000))
    ] == [500, 27, 1]
    data, model, sizes = toy_data(), trained_net(), list[int]()
    images, background = (
        images_of(data.train.take(torch.arange(20))),
        background_of(data.train, count=3),
    )
    whole = shap_values(model, images, 0, background, steps=4, tolerance=1.0)
    model.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    monkeypatch.setattr(attribution, "MAX_BATCH_VALUES", 8 * 64)
    parts = shap_values(model, images, 0, background, steps=4, tolerance=1.0)
    assert max(sizes) == 8
    assert torch.allclose(parts.values, whole.values, atol=1e-6)


def test_modes_are_put_back() -> None:
    model = trained_net().train()
    model.get_submodule("blocks.outer.0").eval()
    before = [module.training for module in model.modules()]
    images = images_of(toy_data().train.take(torch.arange(2)))
    shap_values(model, images, 0, images, steps=4)
    assert [module.training for module in model.modules()] == before


def test_values_that_do_not_add_up_are_reported() -> None:
    model = TwoClasses(torch.full((1, 1, 1), 40.0))
    with pytest.warns(
        IncompleteAttribution,
        match=r"1 of 2 images .* 0.01.*max_steps \(now 4\)",
    ):
        found = shap_values(
            model,
            torch.tensor([1.0, -0.9]).view(2, 1, 1, 1),
            0,
            torch.full((1, 1, 1, 1), -1.0),
            steps=2,
            max_steps=4,
        )
    assert found.complete.tolist() == [False, True]
    more = shap_values(
        model,
        torch.tensor([1.0, -0.9]).view(2, 1, 1, 1),
        0,
        torch.full((1, 1, 1, 1), -1.0),
        steps=2,
    )
    assert more.complete.all()


def test_the_background_is_drawn_by_seed() -> None:
    train = toy_data().train
    assert torch.equal(background_of(train, 3), background_of(train, 3))
    assert not torch.equal(background_of(train, 3), background_of(train, 4))
    assert background_of(train, 3, count=7).shape == (7, 1, 8, 8)


def test_what_cannot_be_explained() -> None:
    one = torch.zeros(1, 1, 1, 1)
    model = TwoClasses(torch.ones(1, 1, 1))
    with pytest.raises(BadInput, match="one background image"):
        shap_values(model, one[:0], 0, one)
    with pytest.raises(BadInput, match="max_steps, got 8 and 4"):
        shap_values(model, one, 0, one, steps=8, max_steps=4)


def test_without_captum_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(MissingExtra, match=r"'duck-unlearning\[explain\]'"):
        shap_values(
            TwoClasses(torch.ones(1, 1, 1)), torch.zeros(1, 1, 1, 1), 0, torch.zeros(1, 1, 1, 1)
        )
