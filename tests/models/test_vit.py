import pytest
import torch
from torch import nn
from torch.nn import functional as F

from duck.models import MODELS, build
from duck.models.head import find_head
from duck.models.vit import Attention, Layer, VisionTransformer, patch_size


def tiny(shape: tuple[int, int, int]) -> VisionTransformer:
    return VisionTransformer(5, shape, width=16, depth=2, heads=4, mlp=32)


@pytest.mark.parametrize(
    ("side", "weights"), [(224, 85_875_556), (64, 85_331_812), (32, 85_221_220)]
)
def test_size(side: int, weights: int) -> None:
    with torch.device("meta"):
        model = MODELS["vit-b16"](100, (3, side, side))
    size = sum(p.numel() for p in model.parameters())
    assert size == weights
    assert size / 1e6 == pytest.approx(85.9, rel=0.02)


@pytest.mark.parametrize(
    ("side", "patch"),
    [(224, 16), (384, 16), (128, 16), (96, 8), (64, 8), (32, 4), (28, 2), (8, 1), (4, 1)],
)
def test_patch_suits_the_image(side: int, patch: int) -> None:
    assert patch_size(side, side) == patch


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 48), (3, 33, 35)])
def test_logits_for_any_shape(shape: tuple[int, int, int]) -> None:
    assert tiny(shape)(torch.randn(2, *shape)).shape == (2, 5)


def test_every_pixel_counts_also_where_patches_do_not_fit() -> None:
    images = torch.randn(1, 1, 35, 33, requires_grad=True)
    tiny((1, 35, 33))(images)[0, 0].backward()
    assert images.grad is not None
    assert (images.grad != 0).all()


def test_positions_matter() -> None:
    # Patches are single pixels here, so that only their positions tell a mirrored image apart.
    model, images = tiny((1, 8, 8)), torch.randn(2, 1, 8, 8)
    assert not torch.allclose(model(images), model(images.flip(2, 3)), atol=1e-5)


def test_attention_is_that_of_torch() -> None:
    ours, theirs, x = (
        Attention(16, 4),
        nn.MultiheadAttention(16, 4, batch_first=True),
        torch.randn(2, 7, 16),
    )
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = ours.qkv.weight.data, ours.qkv.bias.data
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    assert torch.allclose(ours(x), theirs(x, x, x, need_weights=False)[0], atol=1e-6)


def test_layers_are_pre_norm() -> None:
    layer, tokens = Layer(16, 4, 32), torch.randn(2, 65, 16)
    middle = tokens + layer.attention(F.layer_norm(tokens, (16,), eps=1e-6))
    expected = middle + layer.mlp(F.layer_norm(middle, (16,), eps=1e-6))
    assert torch.allclose(layer(tokens), expected, atol=1e-6)


def test_the_full_model_runs_and_its_head_is_found() -> None:
    model = build("vit-b16", 10, (1, 8, 8), seed=0)
    assert find_head(model, torch.randn(2, 1, 8, 8)).name == "head"
