"""Vision transformer for small images (Dosovitskiy et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .initial import small_normal
from .transformer import Block


class VisionTransformer(nn.Module):
    """Patches as tokens, a class token before them; ViT-S for 32×32 images by default: 21.3 M parameters.

    The patches are 4×4 by default: 64 tokens. ViT-S/16 is made for 224×224 images, 196 tokens of 16×16; on 32×32 such
    patches would leave four tokens, and attention nothing to do. patch=16, size=224 is ViT-S/16 itself.

    It starts from a truncated normal with deviation 0.02, not from He's: that one is derived for layers behind a ReLU.
    """

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
