"""ResNet for ImageNet: a 7×7 stem, pooling, and bottlenecks (He et al., 2016)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from .initial import he_normal
from .resnet import projection

EXPANSION = 4
BLOCKS = (3, 4, 6, 3)


class Bottleneck(nn.Module):
    """Convolutions of 1×1, 3×3 and 1×1, the last to four times the width, and a shortcut around them.

    The stride is in the 3×3 convolution. He et al. have it in the first one, which looks at a quarter of the pixels
    alone; almost everybody trains this form today, and it has as many parameters.
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        change = stride > 1 or inputs != outputs
        self.shortcut = projection(inputs, outputs, stride) if change else nn.Sequential()

    def forward(self, x: Tensor) -> Tensor:
        """Images to images, smaller by the stride."""
        y = relu(self.bn1(self.conv1(x)))
        y = relu(self.bn2(self.conv2(y)))
        return relu(self.bn3(self.conv3(y)) + self.shortcut(x))


def resnet50(classes: int = 1000, width: int = 64) -> nn.Sequential:
    """Four stages of 3, 4, 6 and 3 bottlenecks for images of 224×224: 25.56 M parameters with 1000 classes."""
    stem = [nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    layers: list[nn.Module] = [*stem, nn.MaxPool2d(3, stride=2, padding=1)]
    inputs = width
    for stage, blocks in enumerate(BLOCKS):
        for i in range(blocks):
            layers.append(Bottleneck(inputs, width * 2**stage, stride=2 if stage and not i else 1))
            inputs = EXPANSION * width * 2**stage
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    he_normal(model)
    return model
