"""`letsam study`: the grid of the radius study with its verdicts and figures, and the price of a radius."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from .figures_command import draw
from .lacking import complain
from .recipe import load_recipe
from .reproduce_command import Reproduce, run_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class Study(Reproduce):
    """Run the grid of the radius study and draw it, or price what it takes to find a radius."""

    table: tyro.conf.Positional[Literal["radius", "price"]]
    """radius: constant, scheduled and learned radii on every task. price: auto-sam beside a grid search and Optuna's
    TPE, on the digits unless --columns says otherwise; needs letsam[study]."""
    out: Path = Path("docs/images/reproduction")
    """Where the PNGs and SVGs go."""


def study(request: Study, console: Console) -> None:
    """Run what is missing, show the table and the verdicts, draw what there is."""
    table = load_recipe(request.recipes, "radius-study")
    if request.table == "price":
        from .price_command import price

        price(request, table, console)
        return
    without = run_table(request, table, console)
    if not request.plan:
        from .records import records
        from .study import tasks, verdicts

        console.print(_shown(verdicts(tasks(table, records(request.results / table.records)))))
        draw(table, request.results, request.out, console)
    complain(without)


def _shown(verdicts: dict[str, str]) -> RichTable:
    from rich.table import Table as RichTable

    shown = RichTable(title="Targets, by the runs of full length", title_justify="left")
    for heading in ("target", "verdict"):
        shown.add_column(heading)
    for target, verdict in verdicts.items():
        shown.add_row(target, verdict)
    return shown
