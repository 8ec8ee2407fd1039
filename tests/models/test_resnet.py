import pytest
import torch
from torch import nn

from duck.models import MODELS, build
from duck.models.resnet import ResNet

CIFAR, TINY, IMAGENET = (3, 32, 32), (3, 64, 64), (3, 224, 224)


@pytest.mark.parametrize(
    ("name", "shape", "weights"),
    [
        ("resnet18", CIFAR, 11_220_132),
        ("resnet34", CIFAR, 21_328_292),
        ("resnet50", CIFAR, 23_705_252),
        # The well-known sizes with the ImageNet stem and 1,000 classes, less 900 rows of the head.
        ("resnet18", IMAGENET, 11_689_512 - 900 * 513),
        ("resnet34", IMAGENET, 21_797_672 - 900 * 513),
        ("resnet50", IMAGENET, 25_557_032 - 900 * 2049),
    ],
)
def test_size(name: str, shape: tuple[int, int, int], weights: int) -> None:
    with torch.device("meta"):
        model = MODELS[name](100, shape)
    assert sum(p.numel() for p in model.parameters()) == weights


@pytest.mark.parametrize(
    ("name", "million"), [("resnet18", 11.2), ("resnet34", 21.3), ("resnet50", 23.7)]
)
def test_size_is_within_2_percent_of_the_paper(name: str, million: float) -> None:
    with torch.device("meta"):
        model = MODELS[name](100, CIFAR)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(million, rel=0.02)


@pytest.mark.parametrize(
    ("shape", "side"), [(CIFAR, 4), (TINY, 8), ((3, 65, 65), 3), (IMAGENET, 7)]
)
@pytest.mark.parametrize(("name", "width"), [("resnet18", 512), ("resnet50", 2048)])
def test_last_map(name: str, width: int, shape: tuple[int, int, int], side: int) -> None:
    with torch.device("meta"):
        model = MODELS[name](100, shape)
        assert isinstance(model, ResNet)
        assert model.blocks(model.stem(torch.empty(2, *shape))).shape == (2, width, side, side)
        assert model(torch.empty(2, *shape)).shape == (2, 100)


def test_runs_on_digits() -> None:
    assert build("resnet18", 10, (1, 8, 8), seed=0)(torch.randn(4, 1, 8, 8)).isfinite().all()


def test_he_initialisation() -> None:
    convs = [
        module
        for module in build("resnet18", 10, CIFAR, seed=0).modules()
        if isinstance(module, nn.Conv2d)
    ]
    for conv in convs:
        fan_out = conv.out_channels * conv.kernel_size[0] ** 2
        assert float(conv.weight.detach().std()) == pytest.approx((2 / fan_out) ** 0.5, rel=0.1)
