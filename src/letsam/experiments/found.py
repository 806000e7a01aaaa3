"""The records that a recipe has: those of full length, or the longest shortened ones, which are labelled."""

from __future__ import annotations

from dataclasses import dataclass

from .recipe import Table, Training
from .records import Record


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
    lengths = sorted({record["training"]["epochs"] for record in records.values()})
    places = [(row, column) for column in table.columns for row in table.rows if table.has(row, column)]
    cells = [_cell(table, row, column, lengths, records) for row, column in places]
    return [cell for cell in cells if cell is not None]


def _cell(table: Table, row: str, column: str, lengths: list[int], records: dict[str, Record]) -> Found | None:
    runs = [table.cell(row, column, seed) for seed in table.seeds_of(column)]
    whole = runs[0].epochs
    for epochs in (n for n in reversed(lengths) if n <= whole):
        wanted = [run.scaled(epochs / whole).identity for run in runs]
        if there := tuple(records[identity] for identity in wanted if identity in records):
            return Found(row, column, runs[0], epochs, there)
    return None
