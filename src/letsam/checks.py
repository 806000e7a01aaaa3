"""Checks of what users pass in; each failure is one line that names the fix."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from torch import Tensor


def within(name: str, value: float, low: float, high: float) -> None:
    """low ≤ value ≤ high, and finite."""
    number(name, value)
    if not low <= value <= high:
        allowed = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        raise ValueError(f"{name} is {value!r}; give a number {allowed}")


def number(name: str, value: float) -> None:
    """Neither infinite nor NaN: with those every step would be skipped, without a word."""
    real(name, value)
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}; give a finite number")


def real(name: str, value: float) -> None:
    """A number of any kind, and no text or list."""
    if not isinstance(value, Real | Tensor) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; give a number")


def whole(name: str, value: int, low: int) -> None:
    """A whole number, at least low."""
    if not isinstance(value, Integral):
        raise TypeError(f"{name} is {value!r}; give a whole number")
    within(name, value, low, math.inf)


def positive(name: str, value: float) -> None:
    """A finite number above zero."""
    number(name, value)
    if value <= 0:
        raise ValueError(f"{name} is {value!r}; give a positive number")


def yes_or_no(name: str, value: bool) -> None:
    """True or False: any word would count as true."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; give True or False")


def pair(name: str, values: tuple[float, float]) -> None:
    """Two of something."""
    if not isinstance(values, tuple | list) or len(values) != 2:
        raise TypeError(f"{name} is {values!r}; give two numbers")


def bounded(initial: float, bounds: tuple[float, float]) -> None:
    """A first radius within bounds above zero."""
    pair("bounds", bounds)
    positive("initial", initial)
    positive("bounds[0]", bounds[0])
    real("bounds[1]", bounds[1])
    within("the initial radius", initial, *bounds)


def function(name: str, value: Any) -> None:
    """Something to call."""
    if not callable(value):
        raise TypeError(f"{name} is a {type(value).__name__}; give a function, or use letsam.closure")


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """One of the words."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose from {', '.join(choices)}")
