"""Vision transformer (Dosovitskiy et al. 2021, "An image is worth 16x16 words")."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from duck.models.registry import MODELS, Shape


def patch_size(height: int, width: int) -> int:
    """Return the largest power of two up to 16 with at least 8 patches per side.

    It is 16 for 224 pixels, 8 for 64 and 4 for 32.
    """
    side = min(height, width)
    return max((size for size in (2, 4, 8, 16) if side // size >= 8), default=1)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        samples, tokens, width = x.shape
        # (3, samples, heads, tokens, width of a head)
        qkv = self.qkv(x).view(samples, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()
        attention = F.scaled_dot_product_attention(q, k, v)
        mixed: Tensor = self.out(attention.transpose(1, 2).reshape(samples, tokens, width))
        return mixed


class Layer(nn.Module):
    """Pre-norm encoder layer (eq. 2 and 3)."""

    def __init__(self, width: int, heads: int, mlp: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, mlp), nn.GELU(), nn.Linear(mlp, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class VisionTransformer(nn.Module):
    """Class token, learned positions, pre-norm; the linear head reads the class token."""

    def __init__(
        self,
        num_classes: int,
        shape: Shape,
        width: int = 768,
        depth: int = 12,
        heads: int = 12,
        mlp: int = 3072,
    ) -> None:
        super().__init__()
        channels, rows, columns = shape
        self.patch = patch_size(rows, columns)
        patches = -(-rows // self.patch) * -(-columns // self.patch)
        self.patches = nn.Conv2d(channels, width, self.patch, self.patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, 1 + patches, width))
        self.layers = nn.Sequential(*(Layer(width, heads, mlp) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, num_classes)
        self._initialise()

    def _initialise(self) -> None:
        nn.init.trunc_normal_(self.positions, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        # Pixels beyond the last whole patch count too: fill up with the mean colour, which is 0.
        padded = F.pad(images, (0, -width % self.patch, 0, -height % self.patch))
        patches = self.patches(padded).flatten(2).transpose(1, 2)
        class_tokens = self.class_token.expand(len(images), -1, -1)
        tokens = torch.cat([class_tokens, patches], dim=1) + self.positions
        logits: Tensor = self.head(self.norm(self.layers(tokens)[:, 0]))
        return logits


@MODELS.register("vit-b16")
def vit_b16(num_classes: int, shape: Shape) -> VisionTransformer:
    """ViT-B/16: 86 M weights; patches of 16 pixels at 224, smaller ones on smaller images."""
    return VisionTransformer(num_classes, shape)
