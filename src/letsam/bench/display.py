"""What the user sees while the clock runs. Nothing is drawn in the middle of a step."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text


class Lines:
    """Plain lines, for a log: one when a contender is done, and a sign of life every ten seconds."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._spoken = -float("inf")

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *exception: Any) -> None:
        return None

    def at(self, done: int, total: int, what: str) -> None:
        """So much is done; `what` is next."""
        if time.monotonic() - self._spoken > 10:
            self.note(f"{done}/{total} {what}")

    def ended(self, text: str) -> None:
        """A contender is done."""
        self.note(text)

    def note(self, text: str) -> None:
        """Something worth a line."""
        self._spoken = time.monotonic()
        self.console.print(Text(text), soft_wrap=True)


class Bar(Lines):
    """A bar, for a terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        columns = (BarColumn(40), TextColumn("{task.completed}/{task.total} {task.description}"))
        # A thread that draws would take turns with the steps that are timed.
        self.bar = Progress(*columns, console=console, auto_refresh=False, transient=True)
        self.task = self.bar.add_task("", total=None)

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.bar.stop()

    def at(self, done: int, total: int, what: str) -> None:
        """So much is done; `what` is next."""
        self.bar.update(self.task, completed=done, total=total, description=what, refresh=True)

    def ended(self, text: str) -> None:
        """The bar says it already."""


def display_for(console: Console) -> Lines:
    """What suits the console."""
    return Bar(console) if console.is_terminal else Lines(console)
