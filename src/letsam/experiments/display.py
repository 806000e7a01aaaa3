"""What the user sees while a comparison runs, and the table at its end."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from .config import Job
from .record import Row
from .summary import number, percent, radius


class Display:
    """Plain lines: one when a run ends, and a sign of life every ten seconds."""

    def __init__(self, console: Console, costs: dict[Job, float], finished: set[Job]) -> None:
        self.console, self.costs = console, costs
        self.running: dict[Job, Row | None] = {}
        self.done = set(finished)
        self.share_before = self._share()
        self.begin = self._spoken = time.monotonic()

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *exception: Any) -> None:
        return None

    def start(self, job: Job) -> None:
        """A worker took the job."""
        self.running[job] = None

    def epoch(self, job: Job, row: Row) -> None:
        """An epoch is over."""
        self.running[job] = row
        if time.monotonic() - self._spoken > 10:
            self._say(f"{job}: epoch {row['epoch']}/{job.epochs}, {_state(row)}{self._left()}")

    def end(self, job: Job) -> None:
        """A run is over."""
        row = self.running.pop(job, None)
        self.done.add(job)
        result = "" if row is None else f", test accuracy {percent(row['test_accuracy'], None)} %, {_state(row)}"
        self._say(f"{len(self.done)}/{len(self.costs)} {job}{result}{self._left()}")

    def note(self, text: str) -> None:
        """Something worth a line."""
        self._say(text)

    def _say(self, text: str) -> None:
        self._spoken = time.monotonic()
        self.console.print(Text(text), soft_wrap=True)

    def _share(self) -> float:
        """The share of all passes that is done."""
        part = sum(self.costs[job] for job in list(self.done))  # copies: the live view reads from another thread
        for job, row in list(self.running.items()):
            part += self.costs[job] * (row["epoch"] if row else 0) / job.epochs
        return part / sum(self.costs.values())

    def _left(self) -> str:
        share = self._share()
        if share >= 1 or share <= self.share_before:
            return ""
        elapsed = time.monotonic() - self.begin
        return f", {_duration(elapsed * (1 - share) / (share - self.share_before))} left"


class LiveDisplay(Display):
    """A bar for the whole, a line for every run at work."""

    def __init__(self, console: Console, costs: dict[Job, float], finished: set[Job]) -> None:
        super().__init__(console, costs, finished)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(40),
            TextColumn("{task.percentage:3.0f} %{task.fields[left]}"),
        )
        self.bar = Progress(*columns, console=console)
        self.task = self.bar.add_task("runs", total=1.0, left="")
        self.live = Live(get_renderable=self._view, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveDisplay:
        self.live.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.live.stop()

    def epoch(self, job: Job, row: Row) -> None:
        """An epoch is over."""
        self.running[job] = row

    def _view(self) -> Group:
        title = f"{len(self.done)}/{len(self.costs)} runs"
        self.bar.update(self.task, description=title, completed=self._share(), left=self._left())
        table = Table.grid(padding=(0, 2))
        for job, row in list(self.running.items()):
            done = row["epoch"] if row else 0
            cells = [job.method, f"seed {job.seed}", f"epoch {done}/{job.epochs}", _state(row) if row else "…"]
            table.add_row(*(Text(cell) for cell in cells))
        return Group(self.bar, table)


def result_table(result: dict[str, Any]) -> Table:
    """Method, accuracy, radius, passes, seconds; the first in bold."""
    what = f"{result['model']} on {result['data']}"
    how = f"{result['epochs']} epochs, {len(result['seeds'])} seeds, {100 * result['noise']:g} % label noise"
    table = Table(title=f"{what}: {how}", title_justify="left")
    table.add_column("method")
    for heading in ("test accuracy %", "radius", "passes/step", "seconds"):
        table.add_column(heading, justify="right")
    for method in result["methods"]:
        accuracy = percent(method["test_accuracy"]["mean"], method["test_accuracy"]["std"])
        passes, seconds = f"{method['passes_per_step']:.2f}", f"{method['seconds']:.1f}"
        style = "bold" if method["method"] == result["first"] else ""
        cells = method["method"], accuracy, radius(method), passes, seconds
        table.add_row(*(Text(cell) for cell in cells), style=style)
    return table


def _state(row: Row) -> str:
    return f"loss {row['train_loss']:.3f}" + (f", ρ {number(row['rho'])}" if row["rho"] else "")


def _duration(seconds: float) -> str:
    seconds = round(seconds)
    return f"{seconds} s" if seconds < 100 else f"{seconds // 60}:{seconds % 60:02d} min"
