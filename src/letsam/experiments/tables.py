"""The paper's tables with what we have for each cell, as rows of text."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from .found import find
from .recipe import Table, load_choices, load_recipe
from .records import MEASURE, records
from .reproduce import Cell, cells, score
from .seen import is_partial

Rows = list[list[str]]
Short = dict[tuple[str, str], str]
MEASURES = {"m-sharpness": "m_sharpness", "top eigenvalue": "top_eigenvalue", "trace": "trace"}


def reproduction(recipes: Path, results: Path, name: str) -> Rows:
    """Rows and columns of a recipe: ours with the number of runs, the paper's, and the difference."""
    table = load_recipe(recipes, name)
    short = shortened(table, results)
    found = {(c.row, c.column): _text(c, short.get((c.row, c.column), "")) for c in cells(table, records(results))}
    body = [[row, *(found.get((row, column), "–") for column in table.columns)] for row in table.rows]
    return [["", *table.columns], *body]


def headline(recipes: Path, results: Path, name: str) -> str:
    """What a table is, and how many of its runs there are."""
    table, have = load_recipe(recipes, name), records(results)
    runs = [training.identity for _, _, training in table.runs()]
    label = f" The paper's cells are of {table.label}." if table.label else ""
    return f"{table.title} ({table.source}). Runs: {sum(run in have for run in runs)} of {len(runs)}.{label}"


def shortened(table: Table, results: Path) -> Short:
    """93.10 (1), 20 of 200 epochs: the cells that have shortened runs and no others."""
    found = {}
    for cell in find(table, records(results)):
        if cell.shortened:
            ours, partial = tuple(map(score, cell.records)), any(map(is_partial, cell.records))
            found[cell.row, cell.column] = f"{Cell(cell.row, cell.column, ours, None, partial).text}{cell.shortened}"
    return found


def flatness(table: Table, measures: Path) -> Rows:
    """What was measured at the last weights: a mean over the seeds that there are; only a heading if nothing was."""
    rows = [["run", *MEASURES, "seeds"]]
    for cell in find(table, records(measures, MEASURE)):
        means = [_mean([record["values"][key] for record in cell.records]) for key in MEASURES.values()]
        rows.append([f"{cell.column}, {cell.label}", *means, str(len(cell.records))])
    return rows


def choices(recipes: Path) -> Rows:
    """What the paper leaves open, and what we do."""
    rows = [[c["value"], c["paper"], c["ours"], c["reason"]] for c in load_choices(recipes)]
    return [["what", "in the paper", "here", "because"], *rows]


def _text(cell: Cell, shortened: str) -> str:
    """**96.48 (1)**, paper 96.52 ± 0.12, −0.04"""
    paper = "" if cell.published is None else f"paper {cell.paper}"
    if not cell.ours:
        return "; ".join(part for part in (shortened, paper) if part) or "not run"
    return ", ".join(part for part in (f"**{cell.text}**", paper, cell.difference.strip("–")) if part)


def _mean(values: list[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    return f"{fmean(numbers):.4g}" if len(numbers) == len(values) else "not finite"
