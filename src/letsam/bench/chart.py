"""The bar chart of a record."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ..files import write
from .record import title
from .rows import Row, milliseconds

COLOURS = {"others": "#9aa3ad", "eager": "#3b7dd8", "captured": "#e07b39", "compiled": "#3a9d6e"}
GAP = 0.8


def draw(record: dict[str, Any], path: Path) -> bool:
    """Write the chart as a PNG; False if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    groups = _groups([row for row in record["rows"] if not row["error"]])
    lines = sum(len(rows) + GAP for rows in groups.values())
    figure = Figure(figsize=(9, 1.4 + 0.28 * lines), layout="constrained")
    axes = figure.add_subplot()
    longest = max((row["ms"] for rows in groups.values() for row in rows), default=1.0)
    first, ticks, names = 0.0, [], []
    for group, rows in groups.items():
        places = [first + i for i in range(len(rows))]
        bars = axes.barh(places, [row["ms"] for row in rows], 0.75, color=COLOURS[group], label=_legend(group))
        axes.bar_label(bars, [_value(row) for row in rows], padding=3, fontsize=8)
        ticks += places
        names += [row["name"] for row in rows]
        first += len(rows) + GAP
    axes.set_yticks(ticks, names, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2 * longest)  # room for the values
    axes.set_xlabel("ms a step; in brackets: beside the plain step of the same mode")
    axes.set_title(title(record), fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    if groups:
        figure.legend(loc="outside lower center", ncols=len(groups), frameon=False, fontsize=9)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=150)
    write(path, image.getvalue())
    return True


def _groups(rows: list[Row]) -> dict[str, list[Row]]:
    """The others first, then ours by mode."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["mode"] if row["kind"] == "letsam" else "others", []).append(row)
    return groups


def _legend(group: str) -> str:
    return "others, eager" if group == "others" else f"letsam, {group}"


def _value(row: Row) -> str:
    return milliseconds(row["ms"]) + ("" if row["relative"] is None else f" ({row['relative']:.2f}×)")
