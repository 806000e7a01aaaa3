"""Which figures can be drawn from the records of a recipe, and how; a panel a column."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from ..measure import Surface, figures
from .found import Found, find
from .panels import Drawing, panels, radii, series
from .recipe import Figure, Table
from .records import MEASURE, RUN, records
from .reproduce import score
from .study import STUDY
from .study_drawing import study_drawings

LEARNED = ("lets-", "auto-")


def drawings(table: Table, results: Path) -> list[Drawing]:
    """All figures of a recipe that there are records for: that of a figure, those of a table, the study's."""
    if table.name == STUDY:
        return study_drawings(table, results)
    runs = find(table, records(results / table.records))
    if not isinstance(table, Figure):
        learned = [cell for cell in runs if cell.training.method.startswith(LEARNED)]
        noisy = [cell for cell in runs if cell.training.noise]  # where the last epoch is not the best one
        return [
            *_sensitivity(table, runs),
            *panels(table, noisy, "accuracy", "test accuracy by epoch", _accuracies),
            *panels(table, learned, "radius", "radius by epoch", radii),
        ]
    if table.kind == "loss-landscape":
        measured = find(table, records(results / "measures", MEASURE))
        flat = panels(table, measured, "surface", "training loss along two random directions", _surfaces, area=True)
        return [*flat, *panels(table, measured, "profile", "training loss along one random direction", _profiles)]
    draw = {"convergence": _losses, "generalization-gap": _gaps}[table.kind]
    return panels(table, runs, "", table.title[0].lower() + table.title[1:], draw)


def lacking(table: Figure, results: Path) -> str:
    """One line on what a figure has not, empty if it has everything."""
    measures = table.kind == "loss-landscape"
    folder, kind = ("measures", MEASURE) if measures else (table.records, RUN)
    have = records(results / folder, kind)
    runs = [run for _, _, run in table.runs()]
    missing = sum(run.identity not in have for run in runs)
    what = "measures" if measures else "full-length runs"
    return f"{missing} of {len(runs)} {what} are missing." if missing else ""


def _sensitivity(table: Table, cells: list[Found]) -> list[Drawing]:
    """Of a table whose rows are radii and nothing else, one figure: a line a column that has two of them or more."""
    if any(set(settings) != {"rho"} for settings in table.rows.values()):
        return []
    lines: dict[str, dict[float, list[float]]] = {}
    for cell in cells:
        seeds = [score(record) for record in cell.records]
        lines.setdefault(f"{cell.column}{cell.shortened}", {})[table.rows[cell.row]["rho"]] = seeds
    lines = {label: points for label, points in lines.items() if len(points) > 1}
    caption = "test accuracy against the radius"
    return [Drawing(f"{table.name}-accuracy", caption, partial(figures.sensitivity, lines, {}))] if lines else []


def _losses(cells: list[Found], path: Path) -> list[Path]:
    return figures.convergence({cell.label: series(cell, "train_loss") for cell in cells}, path)


def _gaps(cells: list[Found], path: Path) -> list[Path]:
    train, test = ({cell.label: _tested(cell, key) for cell in cells} for key in ("train_loss", "test_loss"))
    return figures.generalisation_gap(train, test, path, places=_places(cells))


def _accuracies(cells: list[Found], path: Path) -> list[Path]:
    lines = {cell.label: [[100 * x for x in seed] for seed in _tested(cell, "test_accuracy")] for cell in cells}
    return figures.curves(lines, path, xlabel="epoch", ylabel="test accuracy, %", places=_places(cells))


def _places(cells: list[Found]) -> dict[str, list[int]]:
    return {cell.label: _tested(cell, "epoch")[0] for cell in cells}


def _tested(cell: Found, key: str) -> list[list[Any]]:
    """At the epochs that were tested, which have an accuracy: a loss that is not finite is a gap, not an epoch less."""
    return [[row[key] for row in record["rows"] if row["test_accuracy"] is not None] for record in cell.records]


def _surfaces(cells: list[Found], path: Path) -> list[Path]:
    return figures.landscapes(_measured(cells, "surface"), path)


def _profiles(cells: list[Found], path: Path) -> list[Path]:
    return figures.profiles(_measured(cells, "profile"), path)


def _measured(cells: list[Found], name: str) -> dict[str, Surface]:
    """The landscape of the first seed of each cell; ValueError if they were not measured alike."""
    if any(cell.records[0]["settings"] != cells[0].records[0]["settings"] for cell in cells):
        raise ValueError("measures of one figure have different settings; delete some of results/measures and repeat")
    found = {cell.label: cell.records[0]["values"][name] for cell in cells}
    return {label: Surface(value["axes"], {"training loss": value["values"]}) for label, value in found.items()}
