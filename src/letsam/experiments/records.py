"""Records, read and checked in one place: one that nobody can use is named in a line and left out, the others stay."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from .record import read_json
from .training import Training

RUN, MEASURE, BENCH, PRICE = "letsam run", "letsam measure", "letsam bench", "letsam price"
FORMAT = 1
"""Of all of them."""
PARTS: dict[str, dict[str, type]] = {
    RUN: {"result": dict, "rows": list},
    MEASURE: {"values": dict},
    BENCH: {"settings": dict, "rows": list, "environment": dict},
    PRICE: {"trials": dict},
}
"""What a record of a kind has to have."""
Record = dict[str, Any]


def records(folder: Path, kind: str = RUN) -> dict[str, Record]:
    """By the identity of their run: of finished runs, or of measures of them."""
    found = {}
    for path, record in of_kind(folder, kind):
        try:
            found[training_of(record).identity] = record
        except ValueError as error:
            _tell(f"{path} is left out: {error}")
    return found


def of_kind(folder: Path, kind: str) -> Iterator[tuple[Path, Record]]:
    """All whole records of a kind in a folder, by their names; files of other kinds are none of our business."""
    for path in sorted(folder.glob("*.json")):
        try:
            record = read_json(path)
            if not isinstance(record, dict):
                raise ValueError(f"{path} is no record; move it elsewhere")
            if record.get("kind") == kind:
                _check(path, record)
                yield path, record
        except ValueError as error:
            _tell(f"left out: {error}")


def training_of(record: Record) -> Training:
    """The settings of a run; ValueError with one line if they are none, or not those of its identity."""
    try:
        training = Training(**record["training"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its settings cannot be read ({' '.join(str(error).split())})") from None
    if training.identity != record.get("identity"):
        raise ValueError(f"its identity is not that of its settings, {training.identity}")
    return training


def _check(path: Path, record: Record) -> None:
    if record.get("format") != FORMAT:
        raise ValueError(f"{path} has format {record.get('format')}, and this letsam reads {FORMAT}; use a newer one")
    for name, kind in PARTS[record["kind"]].items():
        if not isinstance(record.get(name), kind):
            raise ValueError(f"{path} is damaged (no {name}); move it away to make it anew")


@cache
def _tell(text: str) -> None:
    """Once, although a command may read a folder several times."""
    print(f"letsam: {text}", file=sys.stderr)
