"""PyramidNet for 32×32 images, the additive one with basic blocks (Han et al., Deep Pyramidal Residual Networks, 2017).

Every block has a few channels more than the one before it: D_k = 16 + α·k/N for the k-th of N blocks, rounded.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, pad, relu

from .initial import he_normal

STEM = 16


class Block(nn.Module):
    """BatchNorm, 3×3 convolution, BatchNorm, ReLU, 3×3 convolution, BatchNorm: one ReLU, and none before the first.

    The shortcut has no weights: it is pooled where the block has a stride, and zeros fill the new channels.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        """Images to images, smaller by the stride."""
        y = relu(self.bn2(self.conv1(self.bn1(x))))
        y = self.bn3(self.conv2(y))
        shortcut = x if self.stride == 1 else avg_pool2d(x, self.stride, ceil_mode=True)
        return y + pad(shortcut, (0, 0, 0, 0, 0, self.more))


def pyramidnet(classes: int = 10, depth: int = 110, alpha: int = 270) -> nn.Sequential:
    """PyramidNet-depth with widening factor alpha: 28.49 M parameters for PyramidNet-110, α = 270 and 10 classes."""
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"depth is {depth}; a PyramidNet of basic blocks has 6·n + 2 layers: 8, 14, 20, …, 110")
    number = (depth - 2) // 2
    layers: list[nn.Module] = [nn.Conv2d(3, STEM, 3, padding=1, bias=False), nn.BatchNorm2d(STEM)]
    inputs = STEM
    for k in range(number):
        outputs = round(STEM + alpha * (k + 1) / number)
        layers.append(Block(inputs, outputs, stride=2 if k in (number // 3, 2 * number // 3) else 1))
        inputs = outputs
    head = [nn.BatchNorm2d(inputs), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    model = nn.Sequential(*layers, *head)
    he_normal(model)
    return model
