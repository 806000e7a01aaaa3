"""Batches of sentences that lie on the device as rows of tokens of one length: (inputs …, labels)."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from .data.encoded import Encoded
from .data.sampler import batches, perm
from .recipe import Training

TEST_BATCH = 128
Batch = tuple[Tensor, ...]


class FromSentences:
    """The source of classified sentences."""

    def __init__(self, training: Training, parts: tuple[Encoded, ...], test: Encoded, device: torch.device) -> None:
        self.steps = batches(min(training.batch, len(parts[0])), len(parts[0]))
        self._training, self._parts, self._test, self._device = training, parts, test, device
        self._orders: dict[int, tuple[int, Tensor]] = {}

    def batch(self, number: int, stream: int) -> Batch:
        """Batch `number` of a stream."""
        part = self._parts[stream]
        size = min(self._training.batch, len(part))
        epoch, i = divmod(number, batches(size, len(part)))
        if self._orders.get(stream, (None,))[0] != epoch:
            # The whole order of an epoch at once: to fetch a batch's would make the host wait at every step.
            self._orders[stream] = epoch, perm(2 * self._training.seed + stream, epoch, len(part), self._device)
        return rows_of(part, self._orders[stream][1][i * size : (i + 1) * size])

    def test(self) -> Generator[Batch]:
        """The test examples in their order."""
        return in_order(self._test)

    def close(self) -> None:
        """Nothing is open."""


def rows_of(encoded: Encoded, chosen: Tensor) -> Batch:
    """Some examples as a batch."""
    return *(rows[chosen] for rows in encoded.inputs.values()), encoded.labels[chosen]


def in_order(encoded: Encoded) -> Generator[Batch]:
    """All examples, a batch after the other."""
    for chosen in torch.arange(len(encoded), device=encoded.labels.device).split(TEST_BATCH):
        yield rows_of(encoded, chosen)
