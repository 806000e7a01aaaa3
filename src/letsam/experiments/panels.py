"""A figure a column of a recipe: what they all share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..measure import figures
from .found import Found
from .recipe import Table


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn: file name without its ending, what it shows, whether it has coloured areas."""

    name: str
    caption: str
    draw: Callable[[Path], list[Path]]
    area: bool = False


def panels(
    table: Table,
    cells: list[Found],
    name: str,
    caption: str,
    draw: Callable[[list[Found], Path], list[Path]],
    area: bool = False,
) -> list[Drawing]:
    """A drawing of every column that has cells."""
    found = []
    for column in table.columns:
        if here := [cell for cell in cells if cell.column == column]:
            file = "-".join(part for part in (table.name, column, name) if part)
            short = "; some runs are shortened" if any(cell.shortened for cell in here) else ""
            found.append(Drawing(file, f"{column}: {caption}{short}", partial(draw, here), area))
    return found


def series(cell: Found, key: str) -> list[list[float | None]]:
    """A number of every epoch, for every seed."""
    return [[row[key] for row in record["rows"]] for record in cell.records]


def radii(cells: list[Found], path: Path) -> list[Path]:
    """The radius by epoch."""
    return figures.radius_paths({cell.label: series(cell, "rho") for cell in cells}, path)
