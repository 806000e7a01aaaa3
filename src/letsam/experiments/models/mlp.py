"""A very deep network of small layers: many tensors, little arithmetic."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu


class DeepMLP(nn.Module):
    """Linear layers with shortcuts around them, then one to the classes: 1,000 layers are 2,000 tensors."""

    def __init__(self, layers: int = 1000, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(layers - 1))
        self.head = nn.Linear(width, classes)
        self.scale = layers**-0.5  # the sum of all branches then stays as large as the input, at any depth

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width) to logits."""
        for layer in self.hidden:
            x = x + self.scale * layer(relu(x))
        return self.head(x)
