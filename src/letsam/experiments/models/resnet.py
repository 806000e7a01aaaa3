"""ResNets for 32×32 images: a 3×3 stem and no pooling before the blocks (He et al., 2016)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from .initial import he_normal


class Subsample(nn.Module):
    """He et al.'s option A: every stride-th pixel, zeros in the new channels; nothing to learn."""

    def __init__(self, stride: int, more: int) -> None:
        super().__init__()
        self.stride, self.more = stride, more

    def forward(self, x: Tensor) -> Tensor:
        """Images to images, smaller by the stride, with more channels."""
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))


class Block(nn.Module):
    """Two 3×3 convolutions with BatchNorm, and a shortcut around them.

    Where the size changes, the shortcut is a 1×1 convolution with BatchNorm (option B), or `Subsample` (option A).
    """

    def __init__(self, inputs: int, outputs: int, stride: int, project: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = projection(inputs, outputs, stride) if project else Subsample(stride, outputs - inputs)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images, smaller by the stride."""
        y = relu(self.bn1(self.conv1(x)))
        return relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def projection(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Option B: a 1×1 convolution and BatchNorm."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


def resnet18(classes: int = 10, width: int = 64) -> nn.Sequential:
    """Four stages of two blocks: 11.17 M parameters with 10 classes."""
    return _network(classes, width, stages=4, blocks=2, project=True)


def resnet32(classes: int = 10, width: int = 16) -> nn.Sequential:
    """Three stages of five blocks: 464,154 parameters with 10 classes.

    Shortcuts by option A: He et al. use it in all their networks for CIFAR, and print 0.46 M parameters.
    """
    return _network(classes, width, stages=3, blocks=5, project=False)


def _network(classes: int, width: int, stages: int, blocks: int, project: bool) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for stage in range(stages):
        outputs = width * 2**stage
        for i in range(blocks):
            layers.append(Block(inputs, outputs, stride=2 if stage and not i else 1, project=project))
            inputs = outputs
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    he_normal(model)
    return model
