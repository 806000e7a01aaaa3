"""The paper's tables with what we have for each cell, as rows of text."""

from __future__ import annotations

from pathlib import Path

from .recipe import load_choices, load_recipe
from .reproduce import Cell, cells, records

Rows = list[list[str]]


def reproduction(recipes: Path, results: Path, name: str) -> Rows:
    """Rows and columns of a recipe: ours with the number of runs, the paper's, and the difference."""
    table = load_recipe(recipes, name)
    found = {(cell.row, cell.column): _text(cell) for cell in cells(table, records(results))}
    body = [[row, *(found[row, column] for column in table.columns)] for row in table.rows]
    return [["", *table.columns], *body]


def headline(recipes: Path, results: Path, name: str) -> str:
    """What a table is, and how many of its runs there are."""
    table, have = load_recipe(recipes, name), records(results)
    runs = [training.identity for _, _, training in table.runs()]
    return f"{table.title} ({table.source}). Runs: {sum(run in have for run in runs)} of {len(runs)}."


def choices(recipes: Path) -> Rows:
    """What the paper leaves open, and what we do."""
    rows = [[c["value"], c["paper"], c["ours"], c["reason"]] for c in load_choices(recipes)]
    return [["what", "in the paper", "here", "because"], *rows]


def _text(cell: Cell) -> str:
    """**96.48 (1)**, paper 96.52 ± 0.12, −0.04"""
    paper = "" if cell.published is None else f"paper {cell.published[0]:.2f} ± {cell.published[1]:.2f}"
    if not cell.ours:
        return paper or "not run"
    return ", ".join(part for part in (f"**{cell.text}**", paper, cell.difference if paper else "") if part)
