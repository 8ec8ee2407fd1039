"""A small convolutional network, for digits and quick trials."""

from torch import Tensor, nn

from duck.models.registry import MODELS, Shape


def _stage(inputs: int, outputs: int) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    ]


@MODELS.register("convnet")
class ConvNet(nn.Module):
    """Three 3x3 convolutions with BatchNorm, two poolings, a linear head; 57,000 weights."""

    def __init__(self, num_classes: int, shape: Shape) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_stage(shape[0], 32),
            # Rounding up keeps an image of a single pixel alive.
            nn.MaxPool2d(2, ceil_mode=True),
            *_stage(32, 64),
            *_stage(64, 64),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(64, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits
