"""Residual networks (He et al. 2016, "Deep residual learning for image recognition"), table 1."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from duck.models.registry import MODELS, Shape

WIDTHS = (64, 128, 256, 512)
SMALL_IMAGE = 64
"""Up to this many pixels a side, the ImageNet stem would throw away most of the image."""


def _conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


def _basic(inputs: int, width: int, stride: int) -> list[nn.Module]:
    return [_conv_bn(inputs, width, 3, stride), nn.ReLU(inplace=True), _conv_bn(width, width, 3)]


def _bottleneck(inputs: int, width: int, stride: int) -> list[nn.Module]:
    # The stride is in the 3x3 convolution: in the first 1x1, three of four pixels would be skipped.
    return [
        _conv_bn(inputs, width, 1),
        nn.ReLU(inplace=True),
        _conv_bn(width, width, 3, stride),
        nn.ReLU(inplace=True),
        _conv_bn(width, 4 * width, 1),
    ]


class Block(nn.Module):
    """y = relu(F(x) + x) (eq. 1); the shortcut is a 1x1 projection if shapes differ (eq. 2)."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        layers = _bottleneck(inputs, width, stride) if bottleneck else _basic(inputs, width, stride)
        self.residual = nn.Sequential(*layers)
        self.outputs = 4 * width if bottleneck else width
        same = stride == 1 and inputs == self.outputs
        shortcut = nn.Identity() if same else _conv_bn(inputs, self.outputs, 1, stride)
        self.shortcut: nn.Module = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x))


def _stem(channels: int, small: bool) -> nn.Sequential:
    if small:
        return nn.Sequential(_conv_bn(channels, WIDTHS[0], 3), nn.ReLU(inplace=True))
    return nn.Sequential(
        _conv_bn(channels, WIDTHS[0], 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)
    )


class ResNet(nn.Module):
    """Four stages of residual blocks, global average pooling and a linear head."""

    def __init__(
        self,
        depths: Sequence[int],
        num_classes: int,
        shape: Shape,
        bottleneck: bool = False,
    ) -> None:
        super().__init__()
        self.stem = _stem(shape[0], small=max(shape[1:]) <= SMALL_IMAGE)
        inputs = WIDTHS[0]
        blocks: list[Block] = []
        for stage, (depth, width) in enumerate(zip(depths, WIDTHS, strict=True)):
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Block(inputs, width, stride, bottleneck))
                inputs = blocks[-1].outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(self.stem(images))
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits


@MODELS.register("resnet18")
def resnet18(num_classes: int, shape: Shape) -> ResNet:
    """11.2 M weights; a 3x3 stem up to 64 pixels, the ImageNet stem above."""
    return ResNet((2, 2, 2, 2), num_classes, shape)


@MODELS.register("resnet34")
def resnet34(num_classes: int, shape: Shape) -> ResNet:
    """21.3 M weights; a 3x3 stem up to 64 pixels, the ImageNet stem above."""
    return ResNet((3, 4, 6, 3), num_classes, shape)


@MODELS.register("resnet50")
def resnet50(num_classes: int, shape: Shape) -> ResNet:
    """23.7 M weights; a 3x3 stem up to 64 pixels, the ImageNet stem above."""
    return ResNet((3, 4, 6, 3), num_classes, shape, bottleneck=True)
