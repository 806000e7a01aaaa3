"""The records that a recipe has: those of full length, or the longest shortened ones, which are labelled."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .recipe import Table, Training
from .records import Record, training_of

ByLength = dict[str, dict[int, Record]]


@dataclass(frozen=True)
class Found:
    """The runs of a cell, all of one length, a record a seed."""

    row: str
    column: str
    training: Training
    epochs: int
    records: tuple[Record, ...]

    @property
    def label(self) -> str:
        """sam, or: sam, 20 of 200 epochs"""
        return f"{self.row}{self.shortened}"

    @property
    def shortened(self) -> str:
        """What has to be said of runs that are not of full length."""
        whole = self.training.epochs
        return "" if self.epochs == whole else f", {self.epochs} of {whole} epochs"


def find(table: Table, records: dict[str, Record]) -> list[Found]:
    """The cells of a recipe that have records, in its order."""
    lengths = _by_length(records)
    places = [(row, column) for column in table.columns for row in table.rows if table.has(row, column)]
    cells = [_cell(table, row, column, lengths) for row, column in places]
    return [cell for cell in cells if cell is not None]


def _cell(table: Table, row: str, column: str, lengths: ByLength) -> Found | None:
    runs = [table.cell(row, column, seed) for seed in table.seeds_of(column)]
    whole = runs[0].epochs
    there = [{n: r for n, r in lengths.get(_any_length(run), {}).items() if n <= whole} for run in runs]
    longest = max((n for of_seed in there for n in of_seed), default=None)
    if longest is None:
        return None
    return Found(row, column, runs[0], longest, tuple(of_seed[longest] for of_seed in there if longest in of_seed))


def _by_length(records: dict[str, Record]) -> ByLength:
    """Records by everything but the number of epochs, then by that."""
    lengths: ByLength = {}
    for record in records.values():
        training = training_of(record)
        lengths.setdefault(_any_length(training), {})[training.epochs] = record
    return lengths


def _any_length(training: Training) -> str:
    return replace(training, epochs=1).identity
