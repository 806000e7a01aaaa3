"""Batches of sentences that lie on the device as rows of tokens, cut to one of a few lengths: (inputs …, labels)."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from .data.encoded import Encoded, rounded
from .data.sampler import batches, perm
from .recipe import Training

TEST_BATCH = 128
Batch = tuple[Tensor, ...]


class FromSentences:
    """The source of classified sentences."""

    def __init__(self, training: Training, parts: tuple[Encoded, ...], test: Encoded, device: torch.device) -> None:
        self.steps = batches(min(training.batch, len(parts[-1])), len(parts[-1]))
        self._training, self._parts, self._test, self._device = training, parts, test, device
        self._edges = parts[-1].edges(min(training.batch, len(parts[-1])))  # of all: every stream has the same shapes
        self._orders: dict[int, tuple[int, Tensor, list[int]]] = {}

    def batch(self, number: int, stream: int) -> Batch:
        """Batch `number` of a stream."""
        part = self._parts[stream]
        size = min(self._training.batch, len(part))
        epoch, i = divmod(number, batches(size, len(part)))
        if self._orders.get(stream, (None,))[0] != epoch:
            # The whole order of an epoch at once: to fetch a batch's would make the host wait at every step.
            order = perm(2 * self._training.seed + stream, epoch, len(part))
            longest = [int(lengths.max()) for lengths in part.lengths[order].split(size)]
            self._orders[stream] = epoch, order.to(self._device), longest
        _, order, longest = self._orders[stream]
        length = next(edge for edge in self._edges if edge >= longest[i])
        return part.batch(order[i * size : (i + 1) * size], length)

    def test(self) -> Generator[Batch]:
        """The test examples in their order."""
        return in_order(self._test)

    def close(self) -> None:
        """Nothing is open."""


def in_order(encoded: Encoded) -> Generator[Batch]:
    """All examples, a batch after the other."""
    for chosen in torch.arange(len(encoded)).split(TEST_BATCH):
        length = min(encoded.width, rounded(int(encoded.lengths[chosen].max())))
        yield encoded.batch(chosen.to(encoded.labels.device), length)
