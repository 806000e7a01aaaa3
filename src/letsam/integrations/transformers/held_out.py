"""Where a learned radius gets its validation batches from: a part of the training set that is not trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import data


def carve(dataset: Any, held_out: float | int | None, seed: int) -> tuple[Any, Any]:
    """(training part, held-out part), by the rule of `letsam.split`; a `datasets.Dataset` stays one."""
    if not countable(dataset):
        raise ValueError("a learned radius cannot hold out a part of a stream: pass radius_dataset=")
    parts = data.split(dataset, held_out, seed)
    if hasattr(dataset, "select"):
        return dataset.select(parts[0].indices), dataset.select(parts[1].indices)
    return parts


def countable(dataset: Any) -> bool:
    """Whether a dataset has samples with numbers; a stream has not."""
    return hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")


class Batches:
    """Batch i of an endless sequence of shuffled epochs, a function of (seed, i): there is no position to save.

    What a collator draws from torch's random state (masked words) is a function of them too, and the run's own draws
    stay the same; one that draws from Python's or NumPy's takes its draws from the run's.
    """

    def __init__(self, dataset: Sequence[Any], collate: Callable[[list[Any]], Any], size: int, seed: int) -> None:
        self.dataset, self.collate, self.size, self.seed = dataset, collate, size, seed

    def __getitem__(self, i: int) -> Any:
        epoch, place = divmod(i, max(1, len(self.dataset) // self.size))
        order = torch.randperm(len(self.dataset), generator=self._generator(epoch))
        chosen = order[place * self.size : (place + 1) * self.size].tolist()
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._generator(-1 - i).get_state())
            return self.collate([self.dataset[k] for k in chosen])

    def _generator(self, which: int) -> torch.Generator:
        return torch.Generator().manual_seed((self.seed * 1_000_003 + which) % 2**63)
