"""The table of a record."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from .record import title
from .rows import Row, milliseconds

CAPTION = (
    "ms/step: the median; where steps differ in passes, that of each kind by how often it comes. × plain: beside erm "
    "in the same mode, for others beside the plain loop. × two: beside two bare passes, in eager mode. vs: how many "
    "times as fast as that implementation."
)


def bench_table(record: dict[str, Any]) -> Table:
    """A row a contender; a speed-up column for each other implementation."""
    rows = record["rows"]
    peers = [row["name"] for row in rows if row["kind"] == "peer"]
    table = Table(title=title(record), box=SIMPLE_HEAD, title_justify="left")
    table.caption, table.caption_justify = f"{CAPTION} Ratios: {record['ratios']}.", "left"
    table.add_column("name", no_wrap=True)
    table.add_column("mode")
    for heading in ("ms/step", "quartiles", "×\nplain", "×\ntwo", *map(_heading, peers), "passes", "peak\nMiB"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=max(map(len, heading.splitlines())))
    section = None
    for row in rows:
        here = row["kind"] == "letsam", row["mode"]
        if section not in (None, here):
            table.add_section()
        section = here
        table.add_row(*(Text(cell) for cell in _cells(row, peers)))
    return table


def failures(record: dict[str, Any]) -> list[str]:
    """A line for each contender that failed."""
    return [f"{row['name']}, {row['mode']}: {row['error']}" for row in record["rows"] if row["error"]]


def _cells(row: Row, peers: list[str]) -> list[str]:
    if row["error"]:
        return [row["name"], row["mode"], "failed", *[""] * (len(peers) + 5)]
    return [
        row["name"],
        row["mode"],
        milliseconds(row["ms"]),
        f"{milliseconds(row['q1_ms'])}–{milliseconds(row['q3_ms'])}",
        _number(row["relative"], ".2f"),
        _number(row["relative_to_two_passes"], ".2f"),
        *(_number(row["speedups"].get(peer), ".2f") for peer in peers),
        _number(row["passes"], ".3g"),
        _number(row["peak_mib"], ".0f"),
    ]


def _heading(peer: str) -> str:
    """Broken where a name has joints: headings are wider than their numbers."""
    return "vs\n" + peer.replace("_", "_\n").replace(".", ".\n")


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
