"""`letsam reproduce`: the plan, the runs, the table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from . import plan as plans
from .recipe import Table, Training, load_recipe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from .loop import Run
    from .record import Row
    from .reproduce import Cell


@dataclass(frozen=True)
class Reproduce:
    """Run the missing cells of a table of the paper, and put ours beside the published ones."""

    table: tyro.conf.Positional[str]
    """A folder of recipes/, such as cifar10 or label-noise."""
    rows: tuple[str, ...] = ()
    """Only these rows."""
    columns: tuple[str, ...] = ()
    """Only these columns."""
    seeds: tuple[int, ...] = ()
    """Only these seeds."""
    scale: float = 1.0
    """Train this share of the epochs; such runs are others, and are labelled."""
    minutes: float | None = None
    """Only as many runs, the most useful ones, as fit into this time."""
    plan: bool = False
    """Print the queue and the time it takes, run nothing."""
    device: str | None = None
    """cuda, cuda:1, cpu; default: a GPU if there is one. With several GPUs start the command once for each: they share
    the work."""
    data: Path | None = None
    """Where letsam data stored the sets; default: its own."""
    recipes: Path = Path("recipes")
    """Where the recipes are."""
    results: Path = Path("results")
    """Where the records of finished runs go, in reproduction/."""
    work: Path = Path("runs")
    """Where the checkpoints of unfinished runs live, in reproduction/."""


def reproduce(request: Reproduce, console: Console) -> None:
    """Plan, run what is missing unless only the plan was asked for, and show the table."""
    from .reproduce import cells, device_name, records, run_all

    table = load_recipe(request.recipes, request.table)
    _check(request, table)
    device, folder = _device(request), request.results / "reproduction"
    done = records(folder)
    speeds = plans.Speeds([request.results / "bench", folder], device_name(device))
    queue = [run for run in plans.missing(table, set(done), speeds, request.scale) if _wanted(request, run)]
    if request.minutes is not None:
        queue = plans.within(queue, request.minutes)
    if request.plan:
        console.print(plan_table(queue, device_name(device)))
        return
    folder.mkdir(parents=True, exist_ok=True)
    work = request.work / "reproduction"
    work.mkdir(parents=True, exist_ok=True)
    with Progress(console, queue) as progress:
        run_all(queue, _maker(request, device), work, folder, progress.tell, progress.say)
    console.print(result_table(table, cells(table, records(folder), request.scale), request.scale))


def _check(request: Reproduce, table: Table) -> None:
    for name, given, known in (("row", request.rows, table.rows), ("column", request.columns, table.columns)):
        for value in given:
            if value not in known:
                raise ValueError(f"{table.name} has no {name} {value!r}; choose from {', '.join(known)}")
    for seed in request.seeds:
        if seed not in table.seeds:
            raise ValueError(f"{table.name} has no seed {seed}; choose from {', '.join(map(str, table.seeds))}")
    Training().scaled(request.scale)


def _wanted(request: Reproduce, run: plans.Planned) -> bool:
    return (
        (not request.rows or run.row in request.rows)
        and (not request.columns or run.column in request.columns)
        and (not request.seeds or run.training.seed in request.seeds)
    )


def _device(request: Reproduce) -> str:
    import torch

    if request.device is not None:
        if request.device.startswith("cuda") and not torch.cuda.is_available():
            raise ValueError(f"--device is {request.device}, and there is no CUDA device; use --device cpu")
        return request.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _maker(request: Reproduce, device: str) -> Callable[[Training], Run]:
    """Makes runs; the images of a set, or their index, are loaded once."""
    from .loop import Run
    from .source import ImageSet, load

    loaded: dict[str, tuple[ImageSet, ImageSet]] = {}

    def make(training: Training) -> Run:
        if training.data not in loaded:
            loaded[training.data] = load(training.data, request.data, device)
        return Run(training, *loaded[training.data], device)

    return make


class Progress:
    """A line an epoch at most every ten seconds in a log; a bar with the time left on a terminal."""

    def __init__(self, console: Console, queue: list[plans.Planned]) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self.console, self.queue = console, queue
        self._begin = self._spoken = time.monotonic()
        columns = (BarColumn(40), TextColumn("{task.percentage:3.0f} % {task.description}"))
        self._bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=sum(run.minutes for run in queue) or 1.0)
        self._first: float | None = None

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._bar.stop()

    def tell(self, run: plans.Planned, row: Row) -> None:
        """An epoch is over."""
        before = sum(other.minutes for other in self.queue[: self.queue.index(run)])
        done = before + run.minutes * row["epoch"] / run.training.epochs
        text = f"{run.training}: epoch {row['epoch']}/{run.training.epochs}, {_state(row)}{self._left(done)}"
        self._bar.update(self._task, completed=done, description=text)
        last = row["epoch"] == run.training.epochs
        if not self.console.is_terminal and (last or time.monotonic() - self._spoken > 10):
            self.say(text)

    def say(self, text: str) -> None:
        """Something worth a line."""
        self._spoken = time.monotonic()
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _left(self, done: float) -> str:
        """By what was done since the start; a resumed run did not do the rest of it now."""
        if self._first is None:
            self._first = done
        whole = sum(run.minutes for run in self.queue)
        if done <= self._first:
            return ""
        minutes = (time.monotonic() - self._begin) / 60 * (whole - done) / (done - self._first)
        return f", {minutes:.1f} min left"


def _state(row: Row) -> str:
    accuracy = "" if row["test_accuracy"] is None else f", test {100 * row['test_accuracy']:.2f} %"
    radius = "" if row["rho"] is None else f", ρ {row['rho']:.4g}"
    return f"loss {row['train_loss']:.3f}{radius}{accuracy}"


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
    for heading in ("ours (runs)", "paper", "difference"):
        shown.add_column(heading, justify="right")
    for cell in cells:
        paper = "–" if cell.published is None else f"{cell.published[0]:.2f} ± {cell.published[1]:.2f}"
        shown.add_row(cell.row, cell.column, cell.text, paper, cell.difference)
    return shown
