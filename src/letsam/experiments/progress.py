"""How far a queue of work is: a bar with the time left on a terminal, elsewhere a line every ten seconds at most."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..terminal import print_line

if TYPE_CHECKING:
    from rich.console import Console


class Progress:
    """Of a whole that is counted in any unit."""

    def __init__(self, console: Console, whole: float) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self.console, self.whole = console, whole or 1.0
        self._spoken = time.monotonic()
        columns = (BarColumn(40), TextColumn("{task.percentage:3.0f} % {task.description}"))
        self._bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=self.whole)
        self._first: float | None = None
        self._begin = 0.0

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._bar.stop()

    def tell(self, done: float, text: str, last: bool = False, pause: float = 10) -> None:
        """So much is done; off a terminal it is a line after so many silent seconds, and the last word on a part is
        always one."""
        text += self._left(done)
        self._bar.update(self._task, completed=done, description=text)
        if not self.console.is_terminal and (last or time.monotonic() - self._spoken > pause):
            self.say(text)

    def say(self, text: str) -> None:
        """Something worth a line."""
        self._spoken = time.monotonic()
        print_line(self.console, text)

    def _left(self, done: float) -> str:
        """By what was done since the start; what was there before that was not done now."""
        if self._first is None:
            self._first, self._begin = done, time.monotonic()
        if done <= self._first:
            return ""
        minutes = (time.monotonic() - self._begin) / 60 * (self.whole - done) / (done - self._first)
        return f", {minutes:.1f} min left"
