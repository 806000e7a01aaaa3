"""The sets and checkpoints that a queue needs, tried before anything is trained: hours later is too late to hear of a
missing one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .data.glue import GLUE
from .recipe import Training
from .selection import Sets

Cell = tuple[str, str, Training]


def lacking(cells: Iterable[Cell], sets: Sets, say: Callable[[str], None]) -> set[str]:
    """The sets and checkpoints that cannot be had, each told with its cells and its command; ValueError if no cell can
    do without them."""
    queue, of = list(cells), dict[str, list[Cell]]()
    for cell in queue:
        for name in needs(cell[2]):
            of.setdefault(name, []).append(cell)
    datasets = {cell[2].data for cell in queue}
    tried = {name: _trouble(name, sets if name in datasets else _load_tokenizer) for name in of}
    troubles = {name: trouble for name, trouble in tried.items() if trouble}
    if troubles and all(needs(cell[2]) & troubles.keys() for cell in queue):
        raise ValueError("; ".join(dict.fromkeys(troubles.values())))
    for name, trouble in troubles.items():
        places = dict.fromkeys(f"{row} in {column}" for row, column, _ in of[name])
        say(f"skipped, {len(of[name])} runs ({', '.join(places)}): {trouble}")
    return set(troubles)


def needs(training: Training) -> set[str]:
    """The set of a run, and its checkpoint if it has one."""
    return {training.data, training.model} if training.data in GLUE else {training.data}


def complain(names: set[str]) -> None:
    """RuntimeError at the end of a queue that lacked sets or checkpoints."""
    if names:
        raise RuntimeError(f"runs were skipped for lack of {', '.join(sorted(names))}; get it, and run this again")


def _load_tokenizer(checkpoint: str) -> None:
    from .models.classifier import load_tokenizer

    load_tokenizer(checkpoint)


def _trouble(name: str, load: Callable[[str], object]) -> str:
    """What is wrong with a set or a checkpoint, and how to get it; nothing if nothing is."""
    try:
        load(name)
    except (ValueError, OSError) as error:
        return " ".join(str(error).split())
    return ""
