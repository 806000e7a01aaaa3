"""Where a learned radius gets its validation batches from: a part of the training set, given back at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch.utils.data import RandomSampler, Sampler

from ... import data


def carve(dataset: Any, held_out: float | int | None, seed: int) -> tuple[Any, Any, Order]:
    """(training part, held-out part, the order to train in), by the rule of `letsam.split`.

    A part of a `datasets.Dataset` is one, too.
    """
    if not countable(dataset):
        raise ValueError("a learned radius cannot hold out a part of a stream: pass radius_dataset=")
    rest, held = data.split(dataset, held_out, seed)
    rows = rest.indices
    if hasattr(dataset, "select"):
        rest, held = dataset.select(rows), dataset.select(held.indices)
    return rest, held, Order(dataset, rest, rows, seed)


def countable(dataset: Any) -> bool:
    """Whether a dataset has samples with numbers; a stream has not."""
    return hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")


class Order(Sampler[int]):
    """The order of a training that holds samples out and gives them back: seed and epoch say it all.

    An epoch has as many samples as the whole set, also while some are held out: it goes on with the next permutation of
    the rest, since fewer samples would be a shorter training. Who trains sets `epoch` and `given_back` before each one.
    """

    def __init__(self, whole: Any, rest: Any, rows: Sequence[int], seed: int) -> None:
        self.whole, self.rest, self.rows, self.seed = whole, rest, torch.tensor(rows), seed
        self.epoch, self.given_back = 0, False

    def __len__(self) -> int:
        return len(self.whole)

    def __iter__(self) -> Iterator[int]:
        if self.given_back:
            return iter(self._permutation(len(self), self.epoch).tolist())
        return islice(self._of_the_rest(*divmod(self.epoch * len(self), len(self.rows))), len(self))

    def can_replace(self, sampler: Any) -> bool:
        """Whether a sampler draws every sample of the whole set once, at random."""
        return type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(self)

    def _of_the_rest(self, which: int, place: int) -> Iterator[int]:
        while True:
            yield from self.rows[self._permutation(len(self.rows), which)][place:].tolist()
            which, place = which + 1, 0

    def _permutation(self, n: int, which: int) -> torch.Tensor:
        return torch.randperm(n, generator=_generator(self.seed, which))


def sampler_of(loader: Any) -> Any:
    """What draws the numbers of a loader's samples, under whatever accelerate has put around it."""
    for name in ("batch_sampler", "sampler"):
        if (inner := getattr(loader, name, None)) is not None:
            return sampler_of(inner)
    return loader


class Batches:
    """Batch i of an endless sequence of shuffled epochs, a function of (seed, i): there is no position to save.

    What a collator draws from torch's random state (masked words) is a function of them too, and the run's own draws
    stay the same; one that draws from Python's or NumPy's takes its draws from the run's.
    """

    def __init__(self, dataset: Sequence[Any], collate: Callable[[list[Any]], Any], size: int, seed: int) -> None:
        self.dataset, self.collate, self.size, self.seed = dataset, collate, size, seed

    def __getitem__(self, i: int) -> Any:
        epoch, place = divmod(i, max(1, len(self.dataset) // self.size))
        order = torch.randperm(len(self.dataset), generator=_generator(self.seed, epoch))
        chosen = order[place * self.size : (place + 1) * self.size].tolist()
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(_generator(self.seed, -1 - i).get_state())
            return self.collate([self.dataset[k] for k in chosen])


def _generator(seed: int, which: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + which) % 2**63)
