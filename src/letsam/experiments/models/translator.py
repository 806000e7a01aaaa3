"""Encoder and decoder for translation (Vaswani et al., 2017), in the shape that IWSLT'14 is usually trained with.

LayerNorm comes after each shortcut, as in the networks that the published scores are from; six layers with a warm-up
need no other order. The decoder's embedding is its output layer; the encoder has one of its own. Dropout is on the
embeddings and on every branch, not on the weights of the attention.

Sequences are padded at their end with PAD. No real place ever looks at padding: sources have a mask, and targets look
back only. Nothing here waits for the device or has a shape that depends on the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ..data.bpe import PAD
from .attention import CrossAttention

KeysValues = tuple[Tensor, Tensor]


@dataclass
class Cache:
    """What a decoder keeps of the source and of the tokens so far: keys and values of every layer."""

    seen: Tensor
    source: list[KeysValues]
    past: list[KeysValues] | None = None
    length: int = 0

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from what was row rows[i], a row of the same source."""
        assert self.past is not None
        self.past = [(keys[rows], values[rows]) for keys, values in self.past]


class Shortcut(nn.Module):
    """norm(x + dropout(branch)) of x and what a branch made of it."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout, self.norm = nn.Dropout(dropout), nn.LayerNorm(width)

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        """(batch, tokens, width) twice to the same."""
        return self.norm(x + self.dropout(branch))


def _feed_forward(width: int, hidden: int) -> nn.Sequential:
    layers = nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)
    for layer in (layers[0], layers[2]):
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class EncoderLayer(nn.Module):
    """Self-attention, then two linear layers."""

    def __init__(self, width: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention, self.feed_forward = CrossAttention(width, heads), _feed_forward(width, hidden)
        self.add1, self.add2 = (Shortcut(width, dropout) for _ in range(2))

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        x = self.add1(x, self.attention(x, self.attention.keys_values(x), seen))
        return self.add2(x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Self-attention that looks back, attention to the source, then two linear layers."""

    def __init__(self, width: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention, self.source = (CrossAttention(width, heads) for _ in range(2))
        self.feed_forward = _feed_forward(width, hidden)
        self.add1, self.add2, self.add3 = (Shortcut(width, dropout) for _ in range(3))

    def forward(self, x: Tensor, source: KeysValues, seen: Tensor) -> Tensor:
        """A whole target."""
        return self._rest(self.attention(x, self.attention.keys_values(x), causal=True), x, source, seen)

    def step(self, x: Tensor, source: KeysValues, seen: Tensor, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        """One more token; returns its output, and keys and values of all tokens so far."""
        keys, values = self.attention.keys_values(x)
        if past is not None:
            keys, values = torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2)
        return self._rest(self.attention(x, (keys, values)), x, source, seen), (keys, values)

    def _rest(self, attended: Tensor, x: Tensor, source: KeysValues, seen: Tensor) -> Tensor:
        x = self.add1(x, attended)
        x = self.add2(x, self.source(x, source, seen))
        return self.add3(x, self.feed_forward(x))


class Translator(nn.Module):
    """(source, target shifted by one) to the logits of the target: 6 + 6 layers of width 512 by default."""

    def __init__(
        self,
        vocabulary: int,
        width: int = 512,
        hidden: int = 1024,
        heads: int = 4,
        depth: int = 6,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self.source_embed, self.target_embed = (nn.Embedding(vocabulary, width) for _ in range(2))
        self.dropout = nn.Dropout(dropout)
        shape = width, hidden, heads, dropout
        self.encoder = nn.ModuleList(EncoderLayer(*shape) for _ in range(depth))
        self.decoder = nn.ModuleList(DecoderLayer(*shape) for _ in range(depth))
        for embed in (self.source_embed, self.target_embed):
            nn.init.normal_(embed.weight, std=width**-0.5)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """(batch, tokens) twice to (batch, tokens, vocabulary)."""
        cache = self.start(source)
        x = self._embedded(self.target_embed, target, 0)
        for layer, keys_values in zip(self._layers, cache.source, strict=True):
            x = layer(x, keys_values, cache.seen)
        return linear(x, self.target_embed.weight)

    def start(self, source: Tensor) -> Cache:
        """Read the source: what every token of its translation looks at."""
        seen = (source != PAD)[:, None, None, :]
        x = self._embedded(self.source_embed, source, 0)
        for layer in self.encoder:
            x = layer(x, seen)
        return Cache(seen, [layer.source.keys_values(x) for layer in self._layers])

    def step(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Tokens (batch,) at the next place to the logits of those after them; the cache grows by one place."""
        x = self._embedded(self.target_embed, tokens[:, None], cache.length)
        past: Sequence[KeysValues | None] = cache.past or [None] * len(self.decoder)
        cache.past = []
        for layer, keys_values, before in zip(self._layers, cache.source, past, strict=True):
            x, now = layer.step(x, keys_values, cache.seen, before)
            cache.past.append(now)
        cache.length += 1
        return linear(x[:, 0], self.target_embed.weight)

    @property
    def _layers(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.decoder))

    def _embedded(self, embed: nn.Embedding, tokens: Tensor, first: int) -> Tensor:
        width = embed.embedding_dim
        where = places(first, tokens.shape[1], width, embed.weight)
        return self.dropout(embed(tokens) * math.sqrt(width) + where)


def places(first: int, count: int, width: int, like: Tensor) -> Tensor:
    """sin(p·ω) and cos(p·ω) at the places p from `first` on, with ω = 10000^(−2i/width) for i below width/2."""
    numbers = torch.arange(max(first + count, width // 2), dtype=like.dtype, device=like.device)
    omega = torch.exp(numbers[: width // 2] * (-2 * math.log(10_000) / width))
    angles = numbers[first : first + count, None] * omega
    return torch.cat([angles.sin(), angles.cos()], 1)
