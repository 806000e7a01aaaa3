"""Vision transformer for small images (Dosovitskiy et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .initial import small_normal
from .transformer import Block


class VisionTransformer(nn.Module):
    """Patches as tokens, a class token before them; ViT-S for 32×32 images by default: 21.3 M parameters."""

    def __init__(
        self, classes: int = 10, width: int = 384, depth: int = 12, heads: int = 6, patch: int = 4, size: int = 32
    ) -> None:
        super().__init__()
        if size % patch:
            raise ValueError(f"patches of {patch} do not divide images of {size}")
        self.embed = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.empty(1, 1, width))
        self.position = nn.Parameter(torch.empty(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        small_normal(self)
        for parameter in (self.token, self.position):
            nn.init.trunc_normal_(parameter, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits, read off the class token."""
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1) + self.position
        return self.head(self.norm(self.blocks(tokens))[:, 0])
