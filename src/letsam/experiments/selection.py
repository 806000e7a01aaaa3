"""Which runs of a recipe a command is about, and where everything lies: what `reproduce` and `measure` share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from .recipe import Table, Training

if TYPE_CHECKING:
    from .source import AnySet

Sets = Callable[[str], "tuple[AnySet, AnySet]"]
"""(training set, test set) of a set by its name."""


@dataclass(frozen=True)
class Selection:
    """Runs of a table."""

    table: tyro.conf.Positional[str]
    """A folder of recipes/, such as cifar10, label-noise or iwslt14."""
    rows: tuple[str, ...] = ()
    """Only these rows."""
    columns: tuple[str, ...] = ()
    """Only these columns."""
    seeds: tuple[int, ...] = ()
    """Only these seeds."""
    scale: float = 1.0
    """Runs of this share of the epochs; they are other runs, and are labelled."""
    device: str | None = None
    """cuda, cuda:1, cpu; default: a GPU if there is one. With several GPUs start the command once for each: they share
    the work."""
    data: Path | None = None
    """Where letsam data stored the sets; default: its own."""
    recipes: Path = Path("recipes")
    """Where the recipes are."""
    results: Path = Path("results")
    """Where the records are: of finished runs in reproduction/ and radius/, of measures in measures/."""
    work: Path = Path("runs")
    """Where the checkpoints and unfinished measures live, in folders of the same names."""

    def check(self, table: Table) -> None:
        """ValueError with one line if the table has no such rows, columns or seeds."""
        for name, given, known in (("row", self.rows, table.rows), ("column", self.columns, table.columns)):
            for value in given:
                if value not in known:
                    raise ValueError(f"{table.name} has no {name} {value!r}; choose from {', '.join(known)}")
        for seed in self.seeds:
            if seed not in table.every_seed:
                seeds = ", ".join(map(str, table.every_seed))
                raise ValueError(f"{table.name} has no seed {seed}; choose from {seeds}")
        Training().scaled(self.scale)

    def wants(self, row: str, column: str, training: Training) -> bool:
        """Whether a run is among them."""
        return (
            (not self.rows or row in self.rows)
            and (not self.columns or column in self.columns)
            and (not self.seeds or training.seed in self.seeds)
        )

    def chosen_device(self) -> str:
        """The device that was asked for, else a GPU, else the CPU."""
        return chosen_device(self.device)


def chosen_device(asked: str | None) -> str:
    """The device that was asked for, else a GPU, else the CPU."""
    import torch

    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked is None:
        return "cuda" if there else "cpu"
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", asked)
    if match is None:
        raise ValueError(f"--device is {asked!r}; give cpu, cuda, or cuda:N for the GPU number N")
    if asked != "cpu" and not there:
        raise ValueError(f"--device is {asked}, and there is no CUDA device; use --device cpu")
    if int(match[1] or 0) >= max(1, there):
        raise ValueError(f"--device is {asked}, and the last GPU is cuda:{there - 1}; give that or a smaller number")
    return asked


def loader(folder: Path | None, device: str) -> Sets:
    """A set, or the index of its images, is loaded once, and stays on the device."""
    from .source import load

    return cache(partial(load, folder=folder, device=device))
