"""Recipes: a table of the paper as rows, columns and seeds of training runs, and what the paper published.

`recipes/NAME/recipe.toml` has the settings all cells share ([train]), and what each column and each row changes
(columns first, then rows); `paper.toml` beside it has the published cells, [mean, standard deviation]; with a `label`
they are of something else, which it names, and no difference to them is shown. A cell and a seed make a `Training`,
whose identity is a hash of its settings: tables that share a run share its record.

A column may have `seeds` of its own, a row `only = […]`, the columns it is in. `records = "…"` is the folder of
results/ that its records go to, reproduction/ by default.

`[search]` has the values that `letsam search` tries for a setting; "options.lr" is the learning rate of ρ, and is tried
where ρ is learned.

A recipe with `figure = "…"` is a figure: it names rows and columns of other recipes, and so shares all of its runs.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from . import shape
from .optimizers import check_method
from .training import Training, hint, one_of

FIGURES = ("generalization-gap", "convergence", "loss-landscape")
REPRODUCTION = "reproduction"
Settings = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A recipe: which runs make it, and what the paper has in each cell."""

    name: str
    title: str
    source: str
    seeds: tuple[int, ...]
    train: Settings
    columns: dict[str, Settings]
    rows: dict[str, Settings]
    published: dict[tuple[str, str], tuple[float, float]]
    records: str
    """The folder of results/ that its records are in."""
    search: dict[str, list[Any]] = field(default_factory=dict)
    """The values of every setting that a search tries."""
    label: str = field(default="", kw_only=True)
    """What the published cells are of, where it is not what is run here."""

    def cell(self, row: str, column: str, seed: int) -> Training:
        """The run of a cell."""
        return _training(self.place(row, column), self.train, self.columns[column], self.rows[row], seed)

    def place(self, row: str, column: str) -> str:
        """Where the settings of a cell are written."""
        return f"{self.name}/recipe.toml, row {row}, column {column}"

    def has(self, row: str, column: str) -> bool:
        """Whether there is such a cell."""
        return column in self.rows[row].get("only", self.columns)

    def seeds_of(self, column: str) -> tuple[int, ...]:
        """The column's own, or those of the table."""
        return tuple(self.columns[column].get("seeds", self.seeds))

    @property
    def every_seed(self) -> list[int]:
        """Of any column."""
        return sorted({seed for column in self.columns for seed in self.seeds_of(column)})

    def runs(self) -> list[tuple[str, str, Training]]:
        """Every cell and seed: the first seed of all cells before the second of any."""
        cells = [(r, c) for c in self.columns for r in self.rows if self.has(r, c)]
        return [(r, c, self.cell(r, c, seed)) for seed in self.every_seed for r, c in cells if seed in self.seeds_of(c)]


@dataclass(frozen=True)
class Figure(Table):
    """A recipe of a figure: runs of tables, a panel a column."""

    kind: str = ""
    tables: tuple[Table, ...] = ()

    def cell(self, row: str, column: str, seed: int) -> Training:
        """The run of that table: column cifar10-resnet18 is resnet18 of cifar10."""
        table = next(table for table in self.tables if column.startswith(f"{table.name}-"))
        return table.cell(row, column.removeprefix(f"{table.name}-"), seed)


def list_recipes(folder: Path) -> list[str]:
    """The names of the recipes in a folder."""
    return sorted(path.parent.name for path in folder.glob("*/recipe.toml"))


def load_recipe(folder: Path, name: str) -> Table:
    """Read a recipe and check every cell of it; ValueError with one line if anything is wrong."""
    known = list_recipes(folder)
    if not known:
        raise ValueError(f"no recipes in {folder}; run this in a clone of letsam, or give --recipes FOLDER")
    if name not in known:
        raise ValueError(f"no recipe is called {name!r}; {hint(name, known)}")
    read = _toml(folder / name / "recipe.toml")
    if "figure" in read:
        return _figure(folder, name, read)
    where = f"{name}/recipe.toml"
    shape.only(where, read, ("title", "source", "seeds", "records", "train", "columns", "rows", "search"))
    shape.need(where, read, ("title", "source", "seeds", "columns", "rows"))
    shape.parts(where, read)
    for row, settings in read["rows"].items():
        for column in settings.get("only", ()):
            one_of(f"{where}: a column of {row}", column, read["columns"])
    published, label = _published(folder / name / "paper.toml", read)
    facts = name, read["title"], read["source"], tuple(read["seeds"]), read.get("train", {})
    rest = read["columns"], read["rows"], published, read.get("records", REPRODUCTION), read.get("search", {})
    table = Table(*facts, *rest, label=label)
    _check_methods(table)
    return table


def _check_methods(table: Table) -> None:
    """Every cell is a run, and its method takes its options."""
    for row, column, training in table.runs():
        if training.seed == table.seeds_of(column)[0]:
            try:
                check_method(training)
            except ValueError as error:
                raise ValueError(f"{table.place(row, column)}: {error}") from None


def load_choices(folder: Path) -> list[dict[str, str]]:
    """What the paper leaves open, and what the recipes do."""
    return _toml(folder / "choices.toml").get("choice", [])


def _figure(folder: Path, name: str, read: Settings) -> Figure:
    keys = ("title", "source", "seeds", "figure", "tables", "columns", "rows")
    where = f"{name}/recipe.toml"
    shape.only(where, read, keys)
    shape.need(where, read, keys)
    shape.kind(where, read, {"title": str, "source": str, **dict.fromkeys(("tables", "columns", "rows"), list)})
    shape.seeds(where, read)
    one_of(f"{name}/recipe.toml: figure", read["figure"], FIGURES)
    tables = tuple(load_recipe(folder, table) for table in read["tables"])
    for table in tables:
        for what, known in (("rows", table.rows), ("columns", table.columns), ("seeds", table.every_seed)):
            for value in read[what]:
                if value not in known:
                    raise ValueError(f"{name}/recipe.toml: {table.name} has no {value!r} in its {what}")
    columns: dict[str, Settings] = {f"{table.name}-{column}": {} for table in tables for column in read["columns"]}
    rows: dict[str, Settings] = {row: {} for row in read["rows"]}
    facts = name, read["title"], read["source"], tuple(read["seeds"])
    return Figure(*facts, {}, columns, rows, {}, REPRODUCTION, {}, read["figure"], tables)


def _published(path: Path, recipe: Settings) -> tuple[dict[tuple[str, str], tuple[float, float]], str]:
    """The cells of paper.toml and its label; a recipe of our own has none."""
    cells = {}
    where, read = f"{path.parent.name}/paper.toml", _toml(path) if path.exists() else {}
    label = read.pop("label", "")
    shape.kind(where, {"label": label, **read}, {"label": str, **dict.fromkeys(read, dict)})
    for row, columns in read.items():
        for column, value in columns.items():
            if row not in recipe["rows"] or column not in recipe["columns"]:
                raise ValueError(f"{where} has a cell {row}, {column} that the recipe has not")
            cells[row, column] = shape.cell(f"{where}: the cell {row}, {column}", value)
    return cells, label


def _training(where: str, train: Settings, column: Settings, row: Settings, seed: int) -> Training:
    settings = {**train, **_without(column, "seeds"), **_without(row, "only")}
    settings["options"] = {k: v for part in (train, column, row) for k, v in part.get("options", {}).items()}
    shape.only(where, settings, tuple(f.name for f in fields(Training) if f.name != "seed"))
    try:
        return Training(**settings, seed=seed)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def _without(settings: Settings, key: str) -> Settings:
    return {k: v for k, v in settings.items() if k != key}


def _toml(path: Path) -> Settings:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
