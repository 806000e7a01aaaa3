"""`letsam reproduce`: the plan, the runs, the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from . import plan as plans
from .progress import Progress
from .recipe import Table, Training, load_recipe
from .selection import Selection, loader

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from .loop import Run
    from .record import Row
    from .reproduce import Cell


SHARES = ("matthews", "pearson", "test_accuracy")
"""Metrics to tell after an epoch, the first that there is."""


@dataclass(frozen=True)
class Reproduce(Selection):
    """Run the missing cells of a table of the paper, and put ours beside the published ones."""

    minutes: float | None = None
    """Only as many runs, the most useful ones, as fit into this time."""
    plan: bool = False
    """Print the queue and the time it takes, run nothing."""


def reproduce(request: Reproduce, console: Console) -> None:
    """Plan, run what is missing unless only the plan was asked for, and show the table."""
    run_table(request, load_recipe(request.recipes, request.table), console)


def run_table(request: Reproduce, table: Table, console: Console) -> None:
    """The same for a recipe that was read."""
    from .reproduce import cells, device_name, records, run_all

    request.check(table)
    device, folder = request.chosen_device(), request.results / table.records
    done = records(folder)
    speeds = plans.Speeds([request.results / "bench", folder], device_name(device))
    queue = plans.missing(table, set(done), speeds, request.scale)
    queue = [run for run in queue if request.wants(run.row, run.column, run.training)]
    if request.minutes is not None:
        queue = plans.within(queue, request.minutes, lambda run: run.minutes)
    if request.plan:
        console.print(plan_table(queue, device_name(device)))
        return
    folder.mkdir(parents=True, exist_ok=True)
    work = request.work / table.records
    work.mkdir(parents=True, exist_ok=True)
    with Progress(console, sum(run.minutes for run in queue)) as progress:
        run_all(queue, maker(request, device), work, folder, partial(tell, progress, queue), progress.say)
    console.print(result_table(table, cells(table, records(folder), request.scale), request.scale))


def maker(request: Reproduce, device: str) -> Callable[[Training], Run]:
    """Makes runs; a set, or the index of its images, is loaded once."""
    from .loop import Run

    sets = loader(request.data, device)
    return lambda training: Run(training, *sets(training.data), device)


def tell(progress: Progress, queue: list[plans.Planned], run: plans.Planned, row: Row) -> None:
    """An epoch of a run is over."""
    epoch, epochs = row["epoch"], run.training.epochs
    done = sum(other.minutes for other in queue[: queue.index(run)]) + run.minutes * epoch / epochs
    progress.tell(done, f"{run.training}: epoch {epoch}/{epochs}, {_state(row)}", last=epoch == epochs)


def _state(row: Row) -> str:
    radius = "" if row["rho"] is None else f", ρ {row['rho']:.4g}"
    return f"loss {row['train_loss']:.3f}{radius}{_tested(row)}"


def _tested(row: Row) -> str:
    for name in SHARES:
        if row.get(name) is not None:
            return f", {name.removesuffix('_accuracy')} {100 * row[name]:.2f} %"
    if row.get("bleu") is not None:
        return f", BLEU {row['bleu']:.2f}"
    return "" if row["test_loss"] is None else f", test loss {row['test_loss']:.3f}"


def plan_table(queue: list[plans.Planned], device: str) -> RichTable:
    """The queue with its minutes; ~ where nothing was measured on such a device."""
    from rich.table import Table as RichTable

    whole = sum(run.minutes for run in queue)
    table = RichTable(title=f"{len(queue)} runs, {whole:.0f} minutes on {device}", title_justify="left")
    for heading in ("table", "row", "column", "seed", "epochs"):
        table.add_column(heading)
    table.add_column("minutes", justify="right")
    for run in queue:
        minutes = f"{'' if run.measured else '~'}{run.minutes:.1f}"
        table.add_row(run.table, run.row, run.column, str(run.training.seed), str(run.training.epochs), minutes)
    return table


def result_table(table: Table, cells: list[Cell], scale: float) -> RichTable:
    """Ours with the number of runs, the paper's, and the difference."""
    from rich.table import Table as RichTable

    label = "" if scale == 1 else f", shortened to {100 * scale:g} % of the epochs"
    shown = RichTable(title=f"{table.title} ({table.source}){label}", title_justify="left")
    for heading in ("row", "column"):
        shown.add_column(heading)
    for heading in ("ours (runs)", f"paper: {table.label}" if table.label else "paper", "difference"):
        shown.add_column(heading, justify="right")
    for cell in cells:
        shown.add_row(cell.row, cell.column, cell.text, cell.paper, cell.difference)
    return shown
