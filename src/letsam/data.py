"""Validation batches for a learned radius: carve a held-out part, and draw from it without end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import torch
from torch.utils.data import Dataset, Subset

from .checks import within


def usual_part(n: int) -> int:
    """How many of n samples to hold out: a tenth, at most 500. One number is learned from them: more are a waste."""
    return min(round(0.1 * n), 500)


def split(dataset: Dataset[Any], held_out: float | int | None = None, seed: int = 0) -> tuple[Subset[Any], Subset[Any]]:
    """(training part, held-out part) of a dataset; the same for the same length and seed.

    held_out is a fraction between 0 and 1, or a number of samples; not given, a tenth, at most 500.
    """
    if not isinstance(dataset, Sized):
        raise TypeError(f"a {type(dataset).__name__} has no length to split; keep some of its samples apart yourself")
    if (n := len(dataset)) < 2:
        raise ValueError(f"the dataset has {n} samples; give at least 2 to split")
    if isinstance(held_out, int):
        within("held_out", held_out, 1, n - 1)
        count = held_out
    elif held_out is None:
        count = usual_part(n)
    else:
        within("held_out", held_out, 0, 1)
        count = round(held_out * n)
    if not 0 < count < n:
        part = "a tenth" if held_out is None else f"held_out={held_out}"
        raise ValueError(f"{part} leaves an empty part of {n} samples; give held_out a number from 1 to {n - 1}")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()
    return Subset(dataset, sorted(order[count:])), Subset(dataset, sorted(order[:count]))


def is_given_back(epoch: int, epochs: int, share: float) -> bool:
    """Whether an epoch, counted from 0, is one of the last, `share` of all, that train on what was held out, too."""
    return epoch >= round((1 - share) * epochs)


class Cycle:
    """Batches of a loader, epoch after epoch, without end: zip(train_loader, letsam.cycle(val_loader)).

    It draws from a random state of its own, seeded by (seed, epoch): the training run draws the same numbers with or
    without it, and `state_dict` is two numbers. To resume, it goes through the epoch's batches up to its position.
    """

    def __init__(self, loader: Iterable[Any], seed: int = 0) -> None:
        self.loader, self.seed = loader, seed
        self.epoch, self.position = 0, 0
        self._iterator: Iterator[Any] | None = None
        self._rng = torch.empty(0)

    def __iter__(self) -> Cycle:
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            self._start()
        try:
            batch = self._draw()
        except StopIteration:
            if self.position == 0:
                raise ValueError("the loader has no batches; letsam.cycle needs at least one") from None
            self.epoch, self.position = self.epoch + 1, 0
            self._start()
            return next(self)
        self.position += 1
        return batch

    def state_dict(self) -> dict[str, int]:
        """The place in the data."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self.seed, self.epoch, self.position = state["seed"], state["epoch"], state["position"]
        self._iterator = None

    def _start(self) -> None:
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + self.epoch) % 2**63)
        self._rng = generator.get_state()
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._rng)
            self._iterator = iter(self.loader)
            self._rng = torch.get_rng_state()
        for seen in range(self.position):
            try:
                self._draw()
            except StopIteration:  # it would end the user's loop without a word
                self._iterator = None
                raise ValueError(
                    f"{self.position} batches of the epoch were drawn, and the loader has {seen}: load it with the "
                    "loader it was saved with"
                ) from None

    def _draw(self) -> Any:
        assert self._iterator is not None
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._rng)
            batch = next(self._iterator)
            self._rng = torch.get_rng_state()
        return batch


cycle = Cycle
