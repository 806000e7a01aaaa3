"""`letsam figures`: every figure that the records have, and one page with tables and figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from ..terminal import print_line
from .recipe import Figure, Table, list_recipes, load_recipe

if TYPE_CHECKING:
    from rich.console import Console

    from .panels import Drawing


@dataclass(frozen=True)
class Figures:
    """Draw the figures of the records, and one page of tables and figures that needs no network."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Folders of recipes/; default: all."""
    out: Path = Path("docs/images/reproduction")
    """Where the PNGs and SVGs go."""
    page: Path = Path("runs/reproduction/report.html")
    """The page to write."""
    recipes: Path = Path("recipes")
    """Where the recipes are."""
    results: Path = Path("results")
    """Where the records are: of finished runs in reproduction/ and radius/, of measures in measures/."""


def figures(request: Figures, console: Console) -> None:
    """Draw what can be drawn, say what is missing, write the page."""
    from ..report.reproduction import Section, write_page
    from .drawing import lacking

    names = request.names or tuple(list_recipes(request.recipes))
    tables = [load_recipe(request.recipes, name) for name in names or ("",)]  # without any, it says what is wrong
    sections = []
    for table in tables:
        found = draw(table, request.results, request.out, console)
        missing = lacking(table, request.results) if isinstance(table, Figure) else ""
        if missing:
            print_line(console, f"{table.name}: {missing}")
        sections.append(Section(table, found, missing))
    write_page(request.page, sections, request.results, request.out)
    print_line(console, f"Page: {request.page}")


def draw(table: Table, results: Path, out: Path, console: Console) -> list[Drawing]:
    """The figures of a recipe that there are records for."""
    from .drawing import drawings

    found = drawings(table, results)
    for drawing in found:
        drawing.draw(out / drawing.name)
        print_line(console, f"{out / drawing.name}.png, .svg: {drawing.caption}")
    return found
