"""`letsam reproduce`: the plan, the runs, the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..terminal import print_line
from . import plan as plans
from .lacking import complain, lacking, needs
from .progress import Progress
from .recipe import Table, Training, load_recipe
from .selection import Selection, Sets, loader

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from .loop import Run
    from .record import Row
    from .reproduce import Cell


SHARES = ("matthews", "pearson", "test_accuracy")
"""Metrics to tell after an epoch, the first that there is."""
QUIET = 30.0
"""Seconds without a line in a log until the step of an epoch is worth one."""


@dataclass(frozen=True)
class Reproduce(Selection):
    """Run the missing cells of a table of the paper, and put ours beside the published ones."""

    minutes: float | None = None
    """Only as many runs, the most useful ones, as fit into this time."""
    plan: bool = False
    """Print the queue and the time it takes, run nothing."""


def reproduce(request: Reproduce, console: Console) -> None:
    """Plan, run what is missing unless only the plan was asked for, and show the table."""
    complain(run_table(request, load_recipe(request.recipes, request.table), console))


def run_table(request: Reproduce, table: Table, console: Console) -> set[str]:
    """The same for a recipe that was read; the sets for lack of which runs were skipped."""
    from .record import device_name
    from .records import records
    from .reproduce import cells, is_busy, make_folder, run_all

    request.check(table)
    device, folder = request.chosen_device(), request.results / table.records
    done = records(folder)
    speeds = plans.Speeds([request.results / "bench", folder], device_name(device))
    queue = plans.missing(table, set(done), speeds, request.scale)
    work = request.work / table.records
    queue = [plans.to_go(run, work) for run in queue if request.wants(run.row, run.column, run.training)]
    sets, without = loader(request.data, device), set[str]()
    if not request.plan:
        without = lacking([(run.row, run.column, run.training) for run in queue], sets, partial(print_line, console))
        queue = [run for run in queue if needs(run.training).isdisjoint(without)]
    rest: list[plans.Planned] = []
    if request.minutes is not None:
        free = [run for run in queue if not is_busy(work / run.training.identity)]
        queue = plans.within(free, request.minutes, lambda run: run.minutes)
        rest = [run for run in free if run not in queue]
    if request.plan:
        console.print(plan_table(queue, device_name(device)))
        return without
    make_folder("--results", folder)
    make_folder("--work", work)
    make = maker(sets, device)
    while queue:
        with Progress(console, sum(run.minutes for run in queue)) as progress:
            listeners = partial(tell, progress, queue), progress.say, None, partial(tell_step, progress, queue)
            left = run_all(queue, make, work, folder, *listeners)
        queue = _refilled(sum(run.minutes for run in left), rest)
        rest = [run for run in rest if run not in queue]
    console.print(result_table(table, cells(table, records(folder), request.scale), request.scale))
    return without


def _refilled(minutes: float, rest: list[plans.Planned]) -> list[plans.Planned]:
    """What the time is for that runs would have taken which other processes had taken meanwhile."""
    fitting = [run for run in rest if run.minutes <= minutes]
    return plans.within(fitting, minutes, lambda run: run.minutes) if fitting else []


def maker(sets: Sets, device: str) -> Callable[[Training], Run]:
    """Makes runs of the sets of a `loader`."""
    from .loop import Run

    return lambda training: Run(training, *sets(training.data), device)


def tell(progress: Progress, queue: list[plans.Planned], run: plans.Planned, row: Row) -> None:
    """An epoch of a run is over."""
    epoch = row["epoch"]
    progress.tell(_done(queue, run, epoch), after_epoch(run, row), last=epoch == run.training.epochs)


def tell_step(progress: Progress, queue: list[plans.Planned], run: plans.Planned, *place: int) -> None:
    """An epoch of a run is so far; in a log that is worth less than a line about an epoch."""
    epoch, step, steps = place
    progress.tell(_done(queue, run, epoch - 1 + step / steps), in_epoch(run, *place), pause=QUIET)


def after_epoch(run: plans.Planned, row: Row) -> str:
    """What there is to say of a run after an epoch."""
    return f"{run.training}: epoch {row['epoch']}/{run.training.epochs}, {_state(row)}"


def in_epoch(run: plans.Planned, epoch: int, step: int, steps: int) -> str:
    """And before its end."""
    return f"{run.training}: epoch {epoch}/{run.training.epochs}, step {step}/{steps}"


def _done(queue: list[plans.Planned], run: plans.Planned, epochs: float) -> float:
    """Minutes of the queue that are behind a run after so many epochs of it."""
    share = (epochs - run.done) / max(1, run.training.epochs - run.done)
    return sum(other.minutes for other in queue[: queue.index(run)]) + run.minutes * share


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
