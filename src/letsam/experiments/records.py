"""Records, read and checked in one place: one that nobody can use is named in a line and left out, the others stay."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from .data.glue import GLUE
from .record import read_json
from .training import Training

RUN, MEASURE, BENCH, PRICE = "letsam run", "letsam measure", "letsam bench", "letsam price"
FORMAT = 1
"""Of all of them."""
PARTS: dict[str, dict[str, Any]] = {
    RUN: {"result": dict, "rows": list, "environment": dict, "seconds": float | int},
    MEASURE: {"values": dict},
    BENCH: {"settings": dict, "rows": list, "environment": dict},
    PRICE: {"trials": dict},
}
"""What a record of a kind has to have."""
MEASURED = ("epoch", "passes", "skipped", "seconds", "seconds_with_test")
"""Numbers of every row of a run; others are null where they are not finite, or were not tested."""
BLEU = {"iwslt14": "tokenised_bleu", "multi30k": "bleu"}
"""What a table of translations shows; of images it is the test accuracy, of GLUE the first metric, in per cent."""
Record = dict[str, Any]


def records(folder: Path, kind: str = RUN) -> dict[str, Record]:
    """By the identity of their run: of finished runs, or of measures of them."""
    found = {}
    for path, record in of_kind(folder, kind):
        try:
            training = training_of(record)
            if kind == RUN and (damage := _damage(record, training)):
                raise ValueError(f"it is damaged ({damage}); move it away to make it anew")
            found[training.identity] = record
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


def metric(data: str) -> str:
    """What the table of a set shows of a run."""
    return BLEU.get(data) or (GLUE[data].metrics[0] if data in GLUE else "test_accuracy")


def _damage(record: Record, training: Training) -> str:
    """What a record has not that every finished run has; nothing if it is whole."""
    result, rows, wanted = record["result"], record["rows"], metric(training.data)
    if not isinstance(record["environment"].get("device"), str):
        return "no device in its environment"
    if lacking := [name for name in (wanted, "rho") if name not in result]:
        return f"no {lacking[0]} in its result"
    if bad := [name for name, value in result.items() if not _is_number(value, or_null=True)]:
        return f"{bad[0]} of its result is no number"
    if len(rows) != training.epochs:
        return f"{len(rows)} rows of {training.epochs} epochs"
    for number, row in enumerate(rows, 1):
        if not (isinstance(row, dict) and all(_is_number(row.get(name)) for name in MEASURED)):
            return f"row {number} has not all of {', '.join(MEASURED)}"
        if bad := [name for name, value in row.items() if not _is_number(value, or_null=True)]:
            return f"{bad[0]} of row {number} is no number"
    return ""


def _is_number(value: Any, or_null: bool = False) -> bool:
    return type(value) in (int, float) or (or_null and value is None)


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
