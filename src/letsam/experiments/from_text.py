"""Batches of sentence pairs that lie on the device as rows of tokens: (source, target shifted by one, target)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import torch
from torch import Tensor

from .data import buckets
from .data.bpe import BOS, EOS
from .data.pairs import Pairs, Side
from .recipe import Training

TEST_TOKENS = 16_384
Batch = tuple[Tensor, Tensor, Tensor]
Order = list[tuple[int, Tensor]]


class FromText:
    """The source of translation. `batch` of a recipe counts the tokens of the longer side, padding included."""

    def __init__(self, training: Training, parts: tuple[Pairs, Pairs], test: Pairs, device: torch.device) -> None:
        self._training, self._test, self._device = training, test, device
        self._parts = tuple(_with_an_empty_pair(pairs) for pairs in parts)
        self._lengths = tuple(pairs.lengths.cpu() for pairs in parts)
        self.edges = buckets.edges(torch.cat(self._lengths))
        self._orders: dict[int, tuple[int, Order]] = {}
        self._counts = tuple(len(self._order(0, stream)) for stream in range(len(parts)))
        self.steps = self._counts[0]

    def batch(self, number: int, stream: int) -> Batch:
        """Batch `number` of a stream; every epoch of it has as many."""
        epoch, i = divmod(number, self._counts[stream])
        length, rows = self._order(epoch, stream)[i]
        return rows_of_pairs(self._parts[stream], rows, length)

    def test(self) -> Generator[Batch]:
        """The test pairs, short ones first."""
        for rows, length in by_length(self._test, TEST_TOKENS):
            yield rows_of_pairs(self._test, rows, length)

    def close(self) -> None:
        """Nothing is open."""

    def _order(self, epoch: int, stream: int) -> Order:
        if self._orders.get(stream, (None,))[0] != epoch:
            what = self._lengths[stream], self.edges, self._training.batch, 2 * self._training.seed + stream, epoch
            lengths, rows = zip(*buckets.batches(*what), strict=True)
            # All rows at once: to fetch those of a batch alone would make the host wait at every step.
            there = torch.cat(rows).to(self._device).split([len(part) for part in rows])
            self._orders[stream] = epoch, list(zip(lengths, there, strict=True))
        return self._orders[stream][1]


def by_length(pairs: Pairs, tokens: int) -> list[tuple[Tensor, int]]:
    """(numbers, length of the longest) of pairs of like length, short ones first, with at most so many tokens."""
    lengths = pairs.lengths.cpu()
    order = lengths.sort(stable=True).indices
    found, first = [], 0
    while first < len(order):
        size = max(1, tokens // int(lengths[order[first]]))
        while size > 1 and size * int(lengths[order[first : first + size]].max()) > tokens:
            size -= 1
        rows = order[first : first + size]
        found.append((rows.to(pairs.source.starts.device), int(lengths[rows].max())))
        first += size
    return found


def rows_of_pairs(pairs: Pairs, rows: Tensor, length: int) -> Batch:
    """Both sides as tensors of one length. The decoder is given BOS and the target, and has to say the target and EOS;
    what it is given after the end is never looked at."""
    target = pairs.target.rows(rows, length)
    shifted = torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], 1)
    return pairs.source.rows(rows, length), shifted, target


def _with_an_empty_pair(pairs: Pairs) -> Pairs:
    """One more pair, for rows that no sentence fills: attention needs a token to look at, the loss has none."""

    def more(side: Side, tokens: int) -> Side:
        last = side.starts.new_full((1,), len(side.tokens))
        return Side(
            torch.cat([side.tokens, side.tokens.new_full((1,), EOS)]),
            torch.cat([side.starts, last]),
            torch.cat([side.lengths, last.new_full((1,), tokens)]),
        )

    return replace(pairs, source=more(pairs.source, 1), target=more(pairs.target, 0))
