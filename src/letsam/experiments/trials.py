"""The search of `letsam search`: Optuna's TPE over the values that a recipe's [search] has for a cell.

A trial is a run like any other, with another setting here and there. The paper gives its values for GLUE as sets, and
its table is on the development set: so is the choice here, and the best score of many is an optimistic one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import letsam

from .recipe import Table, Training
from .records import Record
from .reproduce import score
from .search import load_optuna

RHO_RATE = "options.lr"
Values = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """What is searched: a cell of a table at one seed."""

    row: str
    column: str
    start: Training
    grid: dict[str, list[Any]]

    @property
    def points(self) -> int:
        """Of the whole grid."""
        return math.prod(map(len, self.grid.values()))

    def trial(self, values: Values) -> Training:
        """The run with these settings."""
        plain = {name: value for name, value in values.items() if name != RHO_RATE}
        options = {"lr": values[RHO_RATE]} if RHO_RATE in values else {}
        return replace(self.start, **plain, options=self.start.options | options)

    def middle(self) -> Training:
        """One that stands for all in a plan: its batch is neither the smallest nor the largest."""
        return self.trial({name: values[len(values) // 2] for name, values in self.grid.items()})


def cell(table: Table, row: str, column: str, seed: int, scale: float) -> Cell:
    """The cell with its grid; ValueError with one line if there is none."""
    if not table.search:
        raise ValueError(f"{table.name} has no [search] in its recipe.toml: add the values to try for each setting")
    start = table.cell(row, column, seed).scaled(scale)
    known = {f.name for f in fields(Training)} | {RHO_RATE}
    for name, values in table.search.items():
        if name not in known or not isinstance(values, list) or not values:
            raise ValueError(f"{table.name}, [search]: {name} has to be a setting with a list of values")
    takes_rate = start.method.startswith("lets-") and letsam.describe(start.method).takes("lr")
    grid = {name: values for name, values in table.search.items() if name != RHO_RATE or takes_rate}
    return Cell(row, column, start, grid)


def searched(cell: Cell, trials: int, run: Callable[[Training], Record]) -> list[tuple[Values, Record]]:
    """The trials in their order; the same seed asks for the same, and a point that comes again is not run again."""
    optuna = load_optuna()
    sampler = optuna.samplers.TPESampler(seed=cell.start.seed, n_startup_trials=max(1, trials // 2))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    found = []
    for _ in range(trials):
        trial = study.ask()
        values = {name: trial.suggest_categorical(name, choices) for name, choices in cell.grid.items()}
        record = run(cell.trial(values))
        study.tell(trial, score(record))
        found.append((values, record))
    return found
