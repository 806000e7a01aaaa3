"""Checks of what users pass in; each failure is one line that names the fix."""

from __future__ import annotations

import math
from numbers import Integral


def within(name: str, value: float, low: float, high: float) -> None:
    """low ≤ value ≤ high."""
    if not low <= value <= high:
        allowed = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        raise ValueError(f"{name} is {value!r}; give a number {allowed}")


def whole(name: str, value: int, low: int) -> None:
    """A whole number, at least low."""
    if not isinstance(value, Integral):
        raise TypeError(f"{name} is {value!r}; give a whole number")
    within(name, value, low, math.inf)


def positive(name: str, value: float) -> None:
    """A finite number above zero."""
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} is {value!r}; give a positive number")


def bounded(initial: float, bounds: tuple[float, float]) -> None:
    """A first radius within bounds above zero."""
    positive("initial", initial)
    positive("bounds[0]", bounds[0])
    within("the initial radius", initial, *bounds)


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """One of the words."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose from {', '.join(choices)}")
