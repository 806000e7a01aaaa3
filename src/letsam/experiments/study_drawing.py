"""The figures of the radius study: accuracy against the radius, paths, and what the signal asks for."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from ..measure import figures
from .found import Found, find
from .panels import Drawing, panels, radii
from .recipe import Table, Training
from .record import Row, read_json
from .records import records

QUARTERS = (1, 2, 3, 4)
ESTIMATORS = "estimators.json"


def study_drawings(table: Table, results: Path) -> list[Drawing]:
    """All figures of the study that there are records for."""
    runs = find(table, records(results / table.records))
    with_radii = {cell.column for cell in runs if family(cell.training) and cell.training.rho is not None}
    lines = [cell for cell in runs if family(cell.training) and cell.column in with_radii]
    paths = [cell for cell in runs if learned(cell.training) or "radius" in cell.training.options]
    asked = [cell for cell in runs if learned(cell.training)]
    return [
        *panels(table, lines, "sensitivity", "test accuracy against the radius", _sensitivity),
        *panels(table, paths, "radius", "radius by epoch", radii),
        *panels(table, asked, "signal", "share of updates that ask for a smaller radius", _signal),
        *_estimators(table, results / ESTIMATORS),
    ]


def learned(training: Training) -> bool:
    """Whether its radius is learned."""
    return training.method.startswith(("lets-", "auto-"))


def family(training: Training) -> str | None:
    """The line of a run in the figure of accuracies, None if it is in none."""
    names = {"sam": "fixed", "lets-sam": "as in the paper (lets-sam)", "auto-sam": "auto-sam", "erm": "erm"}
    return None if "radius" in training.options else names.get(training.method)


def by_quarter(rows: list[Row]) -> list[float]:
    """The share of updates that ask for less in each quarter of a run, from its epochs; nan where there were none."""
    bounds = [round(i * len(rows) / 4) for i in range(5)]
    parts = [[row["less"] for row in rows[a:b] if "less" in row] for a, b in pairwise(bounds)]
    return [fmean(part) if part else float("nan") for part in parts]


def _sensitivity(cells: list[Found], path: Path) -> list[Path]:
    lines: dict[str, dict[float, list[float]]] = {}
    level: dict[str, list[float]] = {}
    for cell in cells:
        seeds = [100 * record["result"]["test_accuracy"] for record in cell.records]
        if cell.training.rho is None:
            level[cell.label] = seeds
        else:
            lines.setdefault(f"{family(cell.training)}{cell.shortened}", {})[cell.training.rho] = seeds
    return figures.sensitivity(lines, level, path)


def _signal(cells: list[Found], path: Path) -> list[Path]:
    shares = {cell.label: [by_quarter(record["rows"]) for record in cell.records] for cell in cells}
    places = dict.fromkeys(shares, QUARTERS)
    what = "share of updates that ask for less"
    return figures.curves(shares, path, xlabel="quarter of the training", ylabel=what, places=places)


def _estimators(table: Table, path: Path) -> list[Drawing]:
    """How well each estimator agrees with the exact hyper-gradient, from the record of benchmarks/estimators.py."""
    if not path.exists():
        return []
    found = read_json(path)["estimators"]
    groups = {
        name: {"sign agrees": x["sign"], "correlation": x["correlation"]}
        for name, x in found.items()
        if name != "exact"
    }
    caption = "estimators of the hyper-gradient against the exact one"
    return [Drawing(f"{table.name}-estimators", caption, partial(figures.bars, groups))]
