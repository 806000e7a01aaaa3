"""The radius study as rows of text."""

from __future__ import annotations

from math import isnan
from statistics import fmean

from .found import find
from .recipe import Table
from .records import Record
from .study import tasks, verdicts
from .study_drawing import by_quarter, learned
from .tables import Rows


def task_rows(table: Table, done: dict[str, Record]) -> Rows:
    """What auto-sam and auto-asam are ahead or behind on every task, in points."""
    beside = ("auto-sam over the best constant radius", "over the best growth schedule")
    rows = [["task", *beside, "auto-asam over the best constant ASAM"]]
    for task in tasks(table, done):
        asam = _signed(task.over_fixed_asam) if task.has_asam else "–"
        rows.append([task.column, _signed(task.over_fixed), _signed(task.over_growth), asam])
    return rows


def verdict_rows(table: Table, done: dict[str, Record]) -> Rows:
    """The targets."""
    return [["target", "verdict"], *([target, verdict] for target, verdict in verdicts(tasks(table, done)).items())]


def signal_rows(table: Table, done: dict[str, Record]) -> Rows:
    """What the learned radii were asked for in every quarter, and how far ν moved in an update; means."""
    rows = [["task", "method", "quarter 1", "2", "3", "4", "size of an update of log ρ"]]
    for cell in (cell for cell in find(table, done) if learned(cell.training)):
        shares = [fmean(quarter) for quarter in zip(*(by_quarter(r["rows"]) for r in cell.records), strict=True)]
        step = fmean(row["nu_step"] for record in cell.records for row in record["rows"] if "nu_step" in row)
        asked = ["frozen" if isnan(share) else f"{100 * share:.0f} %" for share in shares]
        rows.append([cell.column, f"`{cell.label}`", *asked, f"{step:.2g}"])
    return rows


def _signed(x: float | None) -> str:
    return "not run" if x is None else f"{x:+.2f}"
