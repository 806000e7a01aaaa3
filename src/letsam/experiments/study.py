"""The radius study: who is who in its recipe, and whether the learned radius keeps what it promises.

Only runs of full length count. Two rows are compared on the seeds that both have; the best of several rows is the one
with the best mean test accuracy, which nobody could know without the test set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from .recipe import Table, Training
from .records import Record

STUDY = "radius-study"
AUTO, AUTO_ASAM = "auto-sam", "auto-asam"
Accuracies = dict[str, dict[int, float]]
"""Of a column: row, seed, test accuracy in per cent."""


def is_fixed(training: Training, method: str = "sam") -> bool:
    """SAM, or another method, at a constant radius, and plain SGD, which is the radius 0."""
    return training.method == "erm" or (training.method == method and "radius" not in training.options)


def is_growth(training: Training) -> bool:
    """SAM whose radius grows on a schedule."""
    return bool(training.options.get("radius", {}).get("rule") == "growth")


@dataclass(frozen=True)
class Task:
    """A column of the study: differences in points of accuracy; None where the runs for it are not there."""

    column: str
    over_fixed: float | None
    """auto-sam minus the best constant radius."""
    over_growth: float | None
    """auto-sam minus the best growth schedule."""
    over_fixed_asam: float | None = None
    """auto-asam minus ASAM at the best constant radius."""
    has_asam: bool = False
    """Whether the study has auto-asam on this task."""


def accuracies(table: Table, done: dict[str, Record], column: str) -> Accuracies:
    """What the runs of a column gave."""
    found: Accuracies = {}
    for row in (row for row in table.rows if table.has(row, column)):
        runs = {seed: table.cell(row, column, seed).identity for seed in table.seeds_of(column)}
        found[row] = {s: 100 * done[run]["result"]["test_accuracy"] for s, run in runs.items() if run in done}
    return found


def tasks(table: Table, done: dict[str, Record]) -> list[Task]:
    """Every column of the study."""
    return [_task(table, accuracies(table, done, column), column) for column in table.columns]


def _task(table: Table, found: Accuracies, column: str) -> Task:
    def rows(of: Callable[[Training], bool]) -> list[str]:
        return [row for row in found if of(table.cell(row, column, 0))]

    return Task(
        column,
        _over(found, AUTO, rows(is_fixed)),
        _over(found, AUTO, rows(is_growth)),
        _over(found, AUTO_ASAM, rows(partial(is_fixed, method="asam"))),
        AUTO_ASAM in found,
    )


def _over(found: Accuracies, row: str, others: list[str]) -> float | None:
    """A row minus the best of the others."""
    means = _means(found, [row, *others]) if others else {}
    return means[row] - max(means[other] for other in others) if means else None


def _means(found: Accuracies, rows: list[str]) -> dict[str, float]:
    """Over the seeds that all of the rows have; empty if there is none."""
    seeds = set.intersection(*(set(found.get(row, {})) for row in rows)) if rows else set()
    return {row: fmean(found[row][seed] for seed in seeds) for row in rows} if seeds else {}


def verdicts(found: list[Task]) -> dict[str, str]:
    """The targets, each with: reached, not reached or not run."""
    fixed, growth = [task.over_fixed for task in found], [task.over_growth for task in found]
    asam = [task.over_fixed_asam for task in found if task.has_asam]
    return {
        "auto-sam is at least the best constant radius − 0.5 on every task": _every(fixed, lambda x: x >= -0.5),
        "auto-sam beats the best constant radius on at least three tasks": _some(fixed, lambda x: x > 0, 3),
        "auto-sam is never more than 1 point under the best growth schedule": _every(growth, lambda x: x >= -1),
        "auto-asam is at least ASAM at the best constant radius − 0.5 on every task that has it": _every(
            asam, lambda x: x >= -0.5
        ),
    }


def _every(values: Iterable[float | None], good: Callable[[float], bool]) -> str:
    """One task that fails decides; without one, all have to be there."""
    known = list(values)
    run = [x for x in known if x is not None]
    if not all(map(good, run)):
        return f"not reached: {sum(map(good, run))} of {_counted(run, known)}"
    return f"reached: {len(run)} of {_counted(run, known)}" if known == run else f"not run: {_counted(run, known)}"


def _some(values: Iterable[float | None], good: Callable[[float], bool], enough: int) -> str:
    """Enough tasks decide; as long as the others could still do it, nothing does."""
    known = list(values)
    run = [x for x in known if x is not None]
    count = sum(map(good, run))
    if count >= enough:
        return f"reached: {count} of {_counted(run, known)}"
    if count + len(known) - len(run) < enough:
        return f"not reached: {count} of {_counted(run, known)}"
    return f"not run: {_counted(run, known)}"


def _counted(run: list[float], known: list[float | None]) -> str:
    return f"{len(run)} tasks" if len(run) == len(known) else f"{len(run)} tasks that were run, of {len(known)}"
