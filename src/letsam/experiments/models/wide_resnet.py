"""Wide ResNet for 32×32 images (Zagoruyko and Komodakis, 2016)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from .initial import he_normal


class Block(nn.Module):
    """BatchNorm and ReLU before each of two 3×3 convolutions, and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int, drop: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        """Images to images, smaller by the stride."""
        active = relu(self.bn1(x))
        y = relu(self.bn2(self.conv1(active)))
        if self.drop:
            y = dropout(y, self.drop, self.training)
        return self.conv2(y) + (x if self.shortcut is None else self.shortcut(active))


def wide_resnet(depth: int = 28, width: int = 10, classes: int = 10, drop: float = 0.0) -> nn.Sequential:
    """WRN-depth-width: 36.5 M parameters for WRN-28-10 with 10 classes."""
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"depth is {depth}; a wide ResNet has 6·n + 4 layers: 10, 16, 22, 28, 40, …")
    blocks: list[nn.Module] = []
    inputs = 16
    for stage in range(3):
        outputs = 16 * width * 2**stage
        for i in range((depth - 4) // 6):
            blocks.append(Block(inputs, outputs, stride=2 if stage and not i else 1, drop=drop))
            inputs = outputs
    stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    head = [nn.BatchNorm2d(inputs), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    model = nn.Sequential(stem, *blocks, *head)
    he_normal(model)
    return model
