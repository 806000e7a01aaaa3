"""What it takes to find a radius: auto-sam, a grid search and Optuna's TPE on the same task, seed and images.

All three hold the same tenth of the training images out. auto-sam is one run that learns from it; a search trains SAM
at one radius after the other on the rest, and takes the one with the best accuracy on what was held out, with its
labels as wrong as the others. The test accuracy of that run is what it found; its price is all of its runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from .recipe import Table, Training
from .record import environment
from .records import FORMAT, PRICE, Record, of_kind, training_of
from .study import AUTO, is_fixed

HEAD = ["contender", "runs", "passes (beside auto-sam)", "seconds", "test accuracy (seeds)"]
TRIALS = 7
"""As many as the grid has points, so that both searches cost the same."""
RANDOM = 3
"""Trials of TPE before its model decides; Optuna's default, 10, would make all of them random."""
Trial = dict[str, float]
Price = dict[str, list[Trial]]


@dataclass(frozen=True)
class Search:
    """The runs of a task and a seed."""

    column: str
    seed: int
    auto: Training
    grid: list[Training]

    def trial(self, rho: float) -> Training:
        """SAM at a radius that is not of the grid."""
        return replace(self.grid[0], rho=rho)

    @property
    def name(self) -> str:
        """The file of its record."""
        return f"price-{self.column}-seed{self.seed}-{self.auto.identity}"

    @property
    def runs(self) -> list[tuple[str, Training]]:
        """All of them, those of TPE at a radius that stands for theirs: it does not change their cost."""
        grid = [(f"grid, ρ = {training.rho:g}", training) for training in self.grid]
        return [("auto-sam", self.auto), *grid, *((f"TPE, trial {n + 1}", self.grid[0]) for n in range(TRIALS))]

    def without(self, done: dict[str, Record]) -> list[tuple[str, Training]]:
        """The runs that are still to make; of TPE, whose radii are not known before, as many as are left."""
        grid, first = 1 + len(self.grid), self.grid[0]
        others = [training for training in map(training_of, done.values()) if training not in self.grid]
        trials = sum(replace(training, rho=first.rho) == first for training in others)
        return [run for run in self.runs[:grid] if run[1].identity not in done] + self.runs[grid + trials :]


def searches(table: Table, column: str, scale: float) -> list[Search]:
    """One a seed."""
    found = []
    for seed in table.seeds_of(column):
        cells = {row: table.cell(row, column, seed).scaled(scale) for row in table.rows if table.has(row, column)}
        grid = [replace(t, validation="held-out") for t in cells.values() if is_fixed(t) and t.rho is not None]
        found.append(Search(column, seed, cells[AUTO], grid))
    return found


def made(search: Search, run: Callable[[str, Training], Record]) -> Price:
    """Make the runs that are missing, and tell what each contender found and paid."""
    auto, *grid = (run(name, training) for name, training in search.runs[: 1 + len(search.grid)])
    return {"auto-sam": _trials([auto]), "grid": _trials(grid), "tpe": _trials(list(_tpe(search, run)))}


def bill(price: Price) -> dict[str, list[Trial]]:
    """The trials of every contender: auto-sam, a grid search, and TPE at the price of either.

    No search can make less than one run; what auto-sam pays is enough for one of SAM, not for two.
    """
    cheap, dear = (sum(trial["passes"] for trial in price[name]) for name in ("auto-sam", "grid"))
    return {
        "auto-sam": price["auto-sam"],
        "TPE at the price of auto-sam": _within(price["tpe"], cheap),
        "grid search": price["grid"],
        "TPE at the price of the grid": _within(price["tpe"], dear),
    }


def taken(trials: list[Trial]) -> Trial:
    """The one with the best accuracy on what was held out."""
    return max(trials, key=lambda trial: trial["held_out"])


def price_record(search: Search, price: Price) -> Record:
    """What a search leaves behind; its runs have records of their own."""
    facts = {"column": search.column, "seed": search.seed, "epochs": search.auto.epochs}
    return {"kind": PRICE, "format": FORMAT, **facts, "environment": environment(), "trials": price}


def bill_rows(folder: Path, column: str, epochs: int) -> list[list[str]]:
    """A row a contender: runs, passes and seconds beside those of auto-sam, and what it found, means over the seeds."""
    bills = [
        bill(price["trials"])
        for _, price in of_kind(folder, PRICE)
        if (price.get("column"), price.get("epochs")) == (column, epochs)
    ]
    return [HEAD, *(_bill_row(name, bills) for name in (bills[0] if bills else ()))]


def _bill_row(name: str, bills: list[dict[str, list[Trial]]]) -> list[str]:
    def cost(of: str, key: str) -> float:
        return fmean(sum(trial[key] for trial in one[of]) for one in bills)

    def beside(key: str) -> str:
        return f"{cost(name, key):,.0f} ({cost(name, key) / cost(AUTO, key):.1f}×)"

    tests = [taken(one[name])["test"] for one in bills]
    spread = f" ± {stdev(tests):.1f}" if len(tests) > 1 else ""
    runs = fmean(len(one[name]) for one in bills)
    return [name, f"{runs:g}", beside("passes"), beside("seconds"), f"{fmean(tests):.1f}{spread} ({len(tests)})"]


def _within(trials: list[Trial], cost: float) -> list[Trial]:
    """The first ones that a number of passes pays for."""
    paid = [sum(t["passes"] for t in trials[: i + 1]) for i in range(len(trials))]
    return trials[: max(1, sum(x <= cost for x in paid))]


def load_optuna() -> Any:
    """The library, told to be quiet; ValueError if it is not there."""
    try:
        import optuna
    except ImportError:
        raise ValueError("searches need Optuna: pip install 'letsam[study]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _tpe(search: Search, run: Callable[[str, Training], Record]) -> Iterator[Record]:
    """Trials between the smallest and the largest radius of the grid, logarithmic; the same seed asks for the same."""
    optuna = load_optuna()
    sampler = optuna.samplers.TPESampler(seed=search.seed, n_startup_trials=RANDOM)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    radii = [training.rho for training in search.grid if training.rho is not None]
    for n in range(TRIALS):
        trial = study.ask()
        record = run(f"TPE, trial {n + 1}", search.trial(trial.suggest_float("rho", min(radii), max(radii), log=True)))
        study.tell(trial, record["held_out_accuracy"])
        yield record


def _trials(records: list[Record]) -> list[Trial]:
    return [
        {
            "rho": record["result"]["rho"],
            "held_out": 100 * record["held_out_accuracy"],
            "test": 100 * record["result"]["test_accuracy"],
            "passes": record["steps"] * sum(row["passes"] for row in record["rows"]),
            "seconds": sum(row["seconds"] for row in record["rows"]),
        }
        for record in records
    ]
