"""The page of the paper's tables and figures beside ours: one file, no network, no script."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ..experiments import tables
from ..experiments.panels import Drawing
from ..experiments.recipe import Figure, Table
from ..experiments.records import Record, records
from ..experiments.reproduce import Cell, cells
from ..files import write
from .page import _asset


@dataclass(frozen=True)
class Section:
    """A recipe with the figures that were drawn, and a line on what is missing."""

    table: Table
    drawings: list[Drawing]
    missing: str


def write_page(path: Path, sections: list[Section], results: Path, images: Path) -> None:
    """Write the page; the SVGs of the figures are in the folder `images`."""
    done = {k: v for name in sorted({s.table.records for s in sections}) for k, v in records(results / name).items()}
    parts = {
        "style": _asset("page.css") + _asset("reproduction.css"),
        "facts": _facts(done),
        "contents": "".join(f'<a href="#{escape(s.table.name)}">{escape(s.table.name)}</a>' for s in sections),
        "sections": "".join(_section(section, done, results, images) for section in sections),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("reproduction.html")))


def _facts(done: dict[str, Record]) -> str:
    hours = sum(record["seconds"] for record in done.values()) / 3600
    devices = sorted({record["environment"]["device"] for record in done.values()})
    facts = [
        (f"{len(done)}", "runs, shortened ones included"),
        (f"{hours:.1f}", f"hours on {', '.join(devices) or '–'}"),
    ]
    return "".join(f"<li><b>{escape(big)}</b><span>{escape(small)}</span></li>" for big, small in facts)


def _section(section: Section, done: dict[str, Record], results: Path, images: Path) -> str:
    table = section.table
    if isinstance(table, Figure):
        body = _flatness(table, results)
    else:
        short = tables.shortened(table, results / table.records)
        found = cells(table, done)
        body = f'<div class="grid">{"".join(_column(table, column, found, short) for column in table.columns)}</div>'
    drawn = "".join(_figure(drawing, images) for drawing in section.drawings)
    note = f'<p class="note">{escape(section.missing)}</p>' if section.missing else ""
    head = f"<h2>{escape(table.title)}</h2><p class='note'>{escape(table.name)}: {escape(table.source)}.</p>"
    return f'<section id="{escape(table.name)}">{head}{body}<div class="grid drawn">{drawn}</div>{note}</section>'


def _column(table: Table, column: str, found: list[Cell], short: tables.Short) -> str:
    """Ours, the paper's and, if they are about the same thing, the difference, for the rows of a column."""
    rows = [["", "ours (runs)", f"paper: {table.label}" if table.label else "paper", "difference"]]
    for cell in (cell for cell in found if cell.column == column):
        rows.append([cell.row, short.get((cell.row, column), cell.text), cell.paper, cell.difference])
    shown = [row[:3] for row in rows] if table.label else rows
    return f'<div class="card scroll"><h3>{escape(column)}</h3>{_table(shown)}</div>'


def _flatness(table: Figure, results: Path) -> str:
    rows = tables.flatness(table, results / "measures") if table.kind == "loss-landscape" else []
    return f'<div class="card scroll">{_table(rows)}</div>' if len(rows) > 1 else ""


def _table(rows: tables.Rows) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in rows[0])
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows[1:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _figure(drawing: Drawing, images: Path) -> str:
    """As an image with its own names inside: two SVGs in one page would mix up theirs."""
    svg = base64.b64encode((images / f"{drawing.name}.svg").read_bytes()).decode()
    kind = "area" if drawing.area else "lines"
    picture = f'<img class="{kind}" alt="{escape(drawing.caption)}" src="data:image/svg+xml;base64,{svg}">'
    return (
        f'<figure class="{kind}"><figcaption><b>{escape(drawing.caption)}</b></figcaption><div>{picture}</div></figure>'
    )
