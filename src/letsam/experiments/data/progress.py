"""What the user sees while a file comes: a bar on a terminal, else a line every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from .download import Progress


def note(console: Console, text: str) -> None:
    """A line of plain text."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress(console: Console, title: str) -> Iterator[Progress]:
    """A function to call with the bytes that are there and the bytes in all, if known."""
    if not console.is_terminal:
        yield _lines(console, title)
        return
    columns = (TextColumn(title), BarColumn(30), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(console: Console, title: str) -> Progress:
    spoken = time.monotonic()

    def say(done: int, total: int | None) -> None:
        nonlocal spoken
        if time.monotonic() - spoken > 10:
            spoken = time.monotonic()
            note(console, f"{title}: {done / 1e6:.0f}" + (f" of {total / 1e6:.0f} MB" if total else " MB"))

    return say
