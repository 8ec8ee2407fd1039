import pytest
import torch
from torch import nn

from duck.models import build
from duck.models.head import with_embeddings


@pytest.mark.parametrize(("classes", "weights"), [(100, 1_730_692), (200, 1_769_192)])
def test_size_is_that_of_the_paper(classes: int, weights: int) -> None:
    assert sum(p.numel() for p in build("allcnn", classes, (3, 32, 32)).parameters()) == weights


def test_eight_convolutions_of_which_two_halve_the_image() -> None:
    convs = [
        module
        for module in build("allcnn", 10, (3, 32, 32)).modules()
        if isinstance(module, nn.Conv2d)
    ]
    assert [conv.stride[0] for conv in convs] == [1, 1, 2, 1, 1, 2, 1, 1]


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 64, 48)])
def test_logits_for_any_shape(shape: tuple[int, int, int]) -> None:
    assert build("allcnn", 7, shape)(torch.randn(2, *shape)).shape == (2, 7)


def test_the_embedding_is_the_input_of_the_last_linear() -> None:
    model, images = build("allcnn", 7, (1, 8, 8)), torch.randn(2, 1, 8, 8)
    with with_embeddings(model, None, images) as net:
        assert net(images)[1].shape == (2, 384)
