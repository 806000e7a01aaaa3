"""Attention of one sequence to another, or to itself, with keys and values that can be kept."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class CrossAttention(nn.Module):
    """softmax(QKᵀ/√d)·V with several heads: queries from one sequence, keys and values from another, or the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}")
        self.heads = heads
        self.query, self.key_value, self.out = (nn.Linear(width, n * width) for n in (1, 2, 1))
        # Queries, keys and values as square matrices with a gain of 1/√2; the pair of two has a larger fan out.
        for layer, gain in ((self.query, 0.5**0.5), (self.key_value, 0.75**0.5), (self.out, 1.0)):
            nn.init.xavier_uniform_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, tokens, width) to keys and values, (batch, heads, tokens, width/heads) each."""
        keys, values = self.key_value(x).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return keys, values

    def forward(
        self, x: Tensor, keys_values: tuple[Tensor, Tensor], seen: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """x attends to the keys that `seen` allows, (batch, 1, 1, keys); causal: to those up to its own place."""
        query = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        found = scaled_dot_product_attention(query, *keys_values, attn_mask=seen, is_causal=causal)
        return self.out(found.transpose(1, 2).flatten(2))
