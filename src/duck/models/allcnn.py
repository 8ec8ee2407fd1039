"""All-convolutional network (Springenberg et al. 2015) with BatchNorm and a two-layer head."""

from torch import Tensor, nn

from duck.models.registry import MODELS, Shape

# Outputs, kernel and stride of the eight convolutions.
LAYERS = (
    (96, 3, 1),
    (96, 3, 1),
    (192, 3, 2),
    (192, 3, 1),
    (192, 3, 1),
    (192, 3, 2),
    (192, 3, 1),
    (192, 1, 1),
)


@MODELS.register("allcnn")
class AllCNN(nn.Module):
    """Strided convolutions instead of pooling; 1,730,692 weights for 100 classes (DUCK paper)."""

    def __init__(self, num_classes: int, shape: Shape) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = shape[0]
        for outputs, kernel, stride in LAYERS:
            conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            layers += [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
            inputs = outputs
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Sequential(
            nn.Linear(inputs, 2 * inputs), nn.ReLU(), nn.Linear(2 * inputs, num_classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits
