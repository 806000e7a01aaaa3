"""The radius study as rows of text."""

from __future__ import annotations

from statistics import fmean

from .found import find
from .recipe import Table
from .reproduce import Record
from .study import tasks, verdicts
from .study_drawing import by_quarter, learned
from .tables import Rows


def task_rows(table: Table, done: dict[str, Record]) -> Rows:
    """What auto-sam is ahead or behind on every task, in points."""
    head = ["task", "over the best constant radius", "over the best growth schedule", "spread over four starts"]
    rows = [
        [task.column, _signed(task.over_fixed), _signed(task.over_growth), _text(task.spread, "{:.2f}")]
        for task in tasks(table, done)
    ]
    return [head, *rows]


def verdict_rows(table: Table, done: dict[str, Record]) -> Rows:
    """The targets."""
    return [["target", "verdict"], *([target, verdict] for target, verdict in verdicts(tasks(table, done)).items())]


def signal_rows(table: Table, done: dict[str, Record]) -> Rows:
    """What the learned radii were asked for in every quarter, and how far ν moved in an update; means."""
    rows = [["task", "method", "quarter 1", "2", "3", "4", "size of an update of ν"]]
    for cell in (cell for cell in find(table, done) if learned(cell.training)):
        shares = [fmean(quarter) for quarter in zip(*(by_quarter(r["rows"]) for r in cell.records), strict=True)]
        step = fmean(row["nu_step"] for record in cell.records for row in record["rows"])
        rows.append([cell.column, f"`{cell.label}`", *(f"{100 * share:.0f} %" for share in shares), f"{step:.2g}"])
    return rows


def _signed(x: float | None) -> str:
    return _text(x, "{:+.2f}")


def _text(x: float | None, form: str) -> str:
    return "not run" if x is None else form.format(x)
