"""The sets that a queue needs, loaded before anything is trained: hours later is too late to hear of a missing one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .recipe import Training
from .selection import Sets

Cell = tuple[str, str, Training]


def lacking(cells: Iterable[Cell], sets: Sets, say: Callable[[str], None]) -> set[str]:
    """The sets that cannot be had, each told with its cells and its command; ValueError if there are no others."""
    of: dict[str, list[Cell]] = {}
    for cell in cells:
        of.setdefault(cell[2].data, []).append(cell)
    troubles = {name: trouble for name in of if (trouble := _trouble(name, sets))}
    if troubles and len(troubles) == len(of):
        raise ValueError("; ".join(dict.fromkeys(troubles.values())))
    for name, trouble in troubles.items():
        places = dict.fromkeys(f"{row} in {column}" for row, column, _ in of[name])
        say(f"skipped, {len(of[name])} runs ({', '.join(places)}): {trouble}")
    return set(troubles)


def complain(names: set[str]) -> None:
    """RuntimeError at the end of a queue that lacked sets."""
    if names:
        raise RuntimeError(f"runs were skipped for lack of {', '.join(sorted(names))}; get it, and run this again")


def _trouble(name: str, sets: Sets) -> str:
    """What is wrong with a set, and how to get it; nothing if nothing is."""
    try:
        sets(name)
    except (ValueError, OSError) as error:
        return " ".join(str(error).split())
    return ""
