"""A language model like GPT-2 (Radford et al., 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from .initial import small_normal
from .transformer import Block


class Decoder(nn.Module):
    """Causal transformer whose output layer is its embedding.

    The default is GPT-2 small, 124.5 M parameters; width 1024, depth 24 and 16 heads are GPT-2 medium, 354.9 M. The
    vocabulary is GPT-2's, rounded up to a multiple of 128.
    """

    def __init__(
        self, width: int = 768, depth: int = 12, heads: int = 12, vocabulary: int = 50304, context: int = 1024
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        small_normal(self)
        for name, parameter in self.named_parameters():
            if name.endswith(("attention.out.weight", "mlp.2.weight")):  # 2·depth of these add up in the residual
                nn.init.normal_(parameter, std=0.02 * (2 * depth) ** -0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, tokens) to logits of the next token at every place."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.embed(tokens) + self.position(places))
        return linear(self.norm(x), self.embed.weight)
