"""What the commands share at the terminal: the console, and stopping with a line that says how to go on."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


class Stopped(BaseException):
    """The user or the system asked us to stop; `code` is the exit code."""

    def __init__(self, code: int) -> None:
        self.code = code


@contextmanager
def stoppable(how: str) -> Iterator[None]:
    """Ctrl-C and SIGTERM end what is inside, with one line that says how to go on."""
    signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        print(f"letsam: stopped; {how}", file=sys.stderr)
        raise Stopped(stop.code if isinstance(stop, Stopped) else 130) from None


@contextmanager
def held() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM wait for the end of what is inside, which can see them coming; a second one does not wait."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only there Python lets us listen
        yield came
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    process = os.getpid()

    def as_before() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def wait(number: int, _: Any) -> None:
        if came or os.getpid() != process:  # a forked process has nothing to wait for
            as_before()
            signal.raise_signal(number)
        came.append(number)

    for number in handlers:
        signal.signal(number, wait)
    try:
        yield came
    finally:
        as_before()
    if came:
        signal.raise_signal(came[0])


def console_on(stream: Any) -> Console:
    """Colours and the real width on a terminal; elsewhere plain lines as long as they are, so that no table is cut."""
    from rich.console import Console

    return Console(file=stream) if stream.isatty() else Console(file=stream, width=1000, color_system=None)


def print_line(console: Console, text: str) -> None:
    """A line as it is, however long."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _on_sigterm(*_: Any) -> None:
    raise Stopped(143)
