"""ResNet for 32×32 images: a 3×3 stem and no pooling before the blocks (He et al., 2016)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from .initial import he_normal


class Block(nn.Module):
    """Two 3×3 convolutions with BatchNorm, and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Images to images, smaller by the stride."""
        y = relu(self.bn1(self.conv1(x)))
        return relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18(classes: int = 10, width: int = 64) -> nn.Sequential:
    """Four stages of two blocks: 11.17 M parameters with 10 classes."""
    blocks: list[nn.Module] = []
    inputs = width
    for stage in range(4):
        outputs = width * 2**stage
        blocks += [Block(inputs, outputs, stride=2 if stage else 1), Block(outputs, outputs, stride=1)]
        inputs = outputs
    stem = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    model = nn.Sequential(*stem, *blocks, *head)
    he_normal(model)
    return model
