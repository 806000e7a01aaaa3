"""`letsam bench`: time or read again, then the table, the record and the chart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from .chart import draw
from .display import display_for
from .measure import run
from .record import chart_of, check_out, read_record, write_record
from .settings import Settings
from .table import bench_table, failures


def bench(settings: Settings, out: Path, console: Console, as_json: bool) -> None:
    """Time everybody, write the record and the chart beside it, show the result."""
    settings = settings.resolved()
    check_out(out)
    record = run(settings, display_for(console))
    failed = failures(record)
    if len(failed) == len(record["rows"]):  # nothing that is worth an earlier record
        raise RuntimeError(f"nothing could be timed; {failed[0]}")
    write_record(out, record)
    _show(record, out, console, as_json)


def show(path: Path, console: Console, as_json: bool) -> None:
    """The table and the chart of an existing record again."""
    _show(read_record(path), path, console, as_json)


def _show(record: dict[str, Any], path: Path, console: Console, as_json: bool) -> None:
    chart = chart_of(path)
    drawn = draw(record, chart)
    if as_json:
        print(json.dumps(record, indent=2, ensure_ascii=False))
    else:
        console.print(bench_table(record))
    lines = [f"failed: {line}" for line in failures(record)]
    lines += [f"note: {note}" for note in record["notes"]]
    lines.append(f"Record: {path}")
    lines.append(f"Chart: {chart}" if drawn else "No chart: matplotlib is missing (pip install 'letsam[cli]')")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
