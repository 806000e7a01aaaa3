"""`letsam search`: what a search of a cell costs, its trials one after the other, the best of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from . import plan as plans
from .one_run import runner
from .progress import Progress
from .recipe import Table, load_recipe
from .reproduce_command import Reproduce

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from .records import Record
    from .trials import Cell, Values

FOLDER = "search"


@dataclass(frozen=True)
class Search(Reproduce):
    """Try the settings that a recipe leaves open, by Optuna's TPE, for some cells; needs letsam[study]."""

    trials: int = 12
    """Runs for each cell, of the first seed unless --seeds says otherwise."""


def search(request: Search, console: Console) -> None:
    """Say what it costs; unless that was all, make the trials of one cell after the other and show them."""
    table = load_recipe(request.recipes, request.table)
    from .record import device_name

    request.check(table)
    if request.trials < 1:
        raise ValueError(f"--trials is {request.trials}; give at least 1")
    device = request.chosen_device()
    folders = [request.results / name for name in ("bench", table.records, FOLDER)]
    speeds = plans.Speeds(folders, device_name(device))
    cells = _cells(request, table)
    if request.minutes is not None:
        cells = plans.within(cells, request.minutes, lambda cell: _minutes(cell, request.trials, speeds))
    console.print(_costs(cells, request.trials, speeds, device_name(device)))
    if not request.plan:
        _make(request, cells, speeds, device, console)


def _make(request: Search, cells: list[Cell], speeds: plans.Speeds, device: str, console: Console) -> None:
    from .search import load_optuna
    from .trials import searched

    load_optuna()  # or its absence would be told after the first run
    shown = []
    with Progress(console, sum(_minutes(cell, request.trials, speeds) for cell in cells)) as progress:
        run = runner(request, FOLDER, device, speeds, progress)
        for cell in cells:
            shown.append(_shown(cell, searched(cell, request.trials, partial(run, f"{cell.row}, {cell.column}"))))
    for table in shown:
        console.print(table)


def _cells(request: Search, table: Table) -> list[Cell]:
    from .trials import cell

    wanted = [
        (row, column)
        for column in request.columns or table.columns
        for row in request.rows or table.rows
        if table.has(row, column)
    ]
    seeds = {column: request.seeds or table.seeds_of(column)[:1] for column in table.columns}
    return [cell(table, row, column, seed, request.scale) for row, column in wanted for seed in seeds[column]]


def _minutes(cell: Cell, trials: int, speeds: plans.Speeds) -> float:
    return trials * speeds.minutes(cell.middle())[0]


def _costs(cells: list[Cell], trials: int, speeds: plans.Speeds, device: str) -> RichTable:
    """Minutes of the trials, and of the whole grid that they stand for; ~ where nothing was measured."""
    from rich.table import Table as RichTable

    whole = sum(_minutes(cell, trials, speeds) for cell in cells)
    shown = RichTable(title=f"{len(cells) * trials} runs, {whole:.0f} minutes on {device}", title_justify="left")
    for heading in ("row", "column", "seed", "trials", "minutes", "points of the grid", "its minutes"):
        shown.add_column(heading, justify="left" if heading in ("row", "column") else "right")
    for cell in cells:
        mark = "" if speeds.minutes(cell.middle())[1] else "~"
        costs = [f"{mark}{_minutes(cell, n, speeds):,.0f}" for n in (trials, cell.points)]
        shown.add_row(cell.row, cell.column, str(cell.start.seed), str(trials), costs[0], f"{cell.points:,}", costs[1])
    return shown


def _shown(cell: Cell, trials: list[tuple[Values, Record]]) -> RichTable:
    """The best trial first, and what all of them took."""
    from rich.table import Table as RichTable

    from .reproduce import score

    runs = {record["identity"]: record for _, record in trials}
    seconds = sum(record["seconds"] for record in runs.values())
    title = f"{cell.row}, {cell.column}: {len(runs)} different runs of {cell.points:,}, {seconds / 60:.1f} minutes; "
    shown = RichTable(title=title + "chosen on the test or development set, so optimistic", title_justify="left")
    for heading in ("score", *cell.grid):
        shown.add_column(heading, justify="right")
    scored = [(score(record), values) for values, record in trials]
    for found, values in sorted(scored, key=lambda trial: (math.isnan(trial[0]), -trial[0])):
        shown.add_row(f"{found:.2f}", *(str(values[name]) for name in cell.grid))
    return shown
