"""The cells of a table: run the missing ones, and put ours beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev

import letsam

from .folder import Busy, locked
from .loop import Run, train_run
from .models import digest
from .plan import Planned
from .recipe import Table, Training
from .record import Row, environment, write_json
from .records import BLEU, FORMAT, RUN, Record, metric, records
from .seen import is_partial, seen


@dataclass(frozen=True)
class Cell:
    """What we have for a cell, and what the paper has: metrics in per cent, or BLEU."""

    row: str
    column: str
    ours: tuple[float, ...]
    published: tuple[float, float] | None
    comparable: bool = True
    """Whether the published number is of the same thing."""
    partial: bool = False
    """Whether one of our runs saw a part of the set alone."""

    @property
    def text(self) -> str:
        """96.52 ± 0.12 (3)"""
        if not self.ours:
            return "not run"
        if lost := sum(not math.isfinite(score) for score in self.ours):
            return f"not finite: {lost} of {len(self.ours)}"
        spread = f" ± {stdev(self.ours):.2f}" if len(self.ours) > 1 else ""
        return f"{mean(self.ours):.2f}{spread} ({len(self.ours)}){', a part of the set' if self.partial else ''}"

    @property
    def paper(self) -> str:
        """96.52 ± 0.12, or a dash."""
        return "–" if self.published is None else f"{self.published[0]:.2f} ± {self.published[1]:.2f}"

    @property
    def difference(self) -> str:
        """Ours minus the paper's, where both are about the same thing."""
        known = self.ours and math.isfinite(mean(self.ours)) and self.comparable and not self.partial and self.published
        return f"{mean(self.ours) - known[0]:+.2f}" if known else "–"


def score(record: Record) -> float:
    """What the table of a run shows; nan if the weights were not finite, which a file says as null."""
    data = record["training"]["data"]
    value = record["result"][metric(data)]
    return math.nan if value is None else value if data in BLEU else 100 * value


def cells(table: Table, done: dict[str, Record], scale: float = 1.0) -> list[Cell]:
    """Every cell of a table with the runs that there are."""
    found = []
    for row, column in ((r, c) for r in table.rows for c in table.columns if table.has(r, c)):
        runs = [table.cell(row, column, seed).scaled(scale).identity for seed in table.seeds_of(column)]
        there = [done[identity] for identity in runs if identity in done]
        ours, partial = tuple(map(score, there)), any(map(is_partial, there))
        found.append(Cell(row, column, ours, table.published.get((row, column)), not table.label, partial))
    return found


def run_all(
    plan: list[Planned],
    make: Callable[[Training], Run],
    work: Path,
    results: Path,
    tell: Callable[[Planned, Row], None],
    say: Callable[[str], None],
    finish: Callable[[Run], Record] | None = None,
    step: Callable[[Planned, int, int, int], None] = lambda *_: None,
) -> list[Planned]:
    """Run what is planned, one after the other; each leaves a record as soon as it is done. Those left to others.

    Several processes, one for each GPU, share the work: a run that another one is at, or has finished, is left to it.
    A run that fails for what it was given, such as an image that cannot be read, is a line, and the next has its turn;
    RuntimeError at the end. `finish` makes the record of a run; `record` by default. `step` hears of a run every few
    seconds.
    """
    failed, left = 0, []
    for planned in plan:
        path, place = results / f"{name_of(planned.training)}.json", work / planned.training.identity
        place.mkdir(exist_ok=True)
        try:
            with locked(place):
                if path.exists():
                    left.append(planned)
                if path.exists() and planned.training.identity in records(results):
                    say(f"{planned.training}: another process has made it")
                elif path.exists():
                    say(f"{planned.training}: there is a record in {path}; move it away to make the run again")
                else:
                    write_json(path, (finish or record)(_trained(planned, make, place, tell, say, step)))
        except Busy:
            left.append(planned)
            say(f"{planned.training}: another process is at it")
        except ValueError as error:
            failed += 1
            say(f"{planned.training}: {' '.join(str(error).split())}")
    if failed:
        raise RuntimeError(f"{failed} of {len(plan)} runs failed; their lines above say why")
    return left


def is_busy(place: Path) -> bool:
    """Whether another process is at the run of a folder."""
    if not (place / ".lock").exists():
        return False
    try:
        with locked(place):
            return False
    except Busy:
        return True


def _trained(
    planned: Planned,
    make: Callable[[Training], Run],
    place: Path,
    tell: Callable[[Planned, Row], None],
    say: Callable[[str], None],
    step: Callable[[Planned, int, int, int], None],
) -> Run:
    return train_run(
        lambda: make(planned.training), place, lambda row: tell(planned, row), say, step=partial(step, planned)
    )


def make_folder(option: str, folder: Path) -> None:
    """A folder in the place that an option names; ValueError with one line if there can be none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValueError(f"{folder} cannot be made: {reason}; choose another place with {option}") from None


def name_of(training: Training) -> str:
    """A file name that people can read; the identity makes it unique."""
    noise = f"-noise{100 * training.noise:g}" if training.noise else ""
    what = f"{training.data}-{Path(training.model).name}-{training.method}{noise}-seed{training.seed}"
    return f"{what}-{training.identity}"


def record(run: Run) -> Record:
    """What a finished run leaves behind."""
    last = run.rows[-1]
    return {
        "kind": RUN,
        "format": FORMAT,
        "identity": run.training.identity,
        "training": asdict(run.training),
        "defaults": {name: value for name, (value, _) in letsam.describe(run.training.method).defaults.items()},
        "data": seen(run.training, *run.sets),
        "environment": environment(str(run.device)),
        **({"history": run.history} if run.history[1:] else {}),
        "seconds": sum(row["seconds_with_test"] for row in run.rows),
        "result": {key: last[key] for key in (*run.task.result, "train_loss", "rho")},
        **({"metrics": run.task.facts} if run.task.facts else {}),
        "weights": digest(run.model),
        "rows": run.rows,
    }
