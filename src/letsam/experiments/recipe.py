"""Recipes: a table of the paper as rows, columns and seeds of training runs, and what the paper published.

`recipes/NAME/recipe.toml` has the settings all cells share ([train]), and what each column and each row changes
(columns first, then rows); `paper.toml` beside it has the published cells, [mean, standard deviation]. A cell and a
seed make a `Training`, whose identity is a hash of its settings: tables that share a run share its record.

A column may have `seeds` of its own, a row `only = […]`, the columns it is in. `records = "…"` is the folder of
results/ that its records go to, reproduction/ by default.

A recipe with `figure = "…"` is a figure: it names rows and columns of other recipes, and so shares all of its runs.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import letsam

from .control import control
from .models import MODELS, TRANSLATORS

IMAGES, TEXT = ("cifar10", "cifar100", "fashion-mnist", "imagenet", "digits"), ("iwslt14", "multi30k")
BASES = ("sgd", "adam", "adamw")
FIGURES = ("generalization-gap", "convergence", "loss-landscape")
SCHEDULES = ("cosine", "linear", "exponential", "inverse-sqrt", "constant")
REPRODUCTION = "reproduction"
LATER = {"beta2": 0.999, "average": 0}
"""Settings that came after the first records: at these values they are not part of a run's identity."""
Settings = dict[str, Any]


@dataclass(frozen=True)
class Training:
    """One run: everything that decides its numbers, and nothing else."""

    data: str = "cifar10"
    model: str = "resnet18"
    method: str = "erm"
    rho: float | None = None
    """The radius, the first one if it is learned; None: the method's own."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further options of the method."""
    seed: int = 0
    epochs: int = 200
    batch: int = 128
    """Images; for text the tokens of the longer side, padding included."""
    base: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "cosine"
    warmup: int = 0
    """Steps in which the learning rate rises to its value."""
    label_smoothing: float = 0.0
    ema: float = 0.0
    """The share of the old average that an exponential moving average of the weights keeps at a step; 0: none. Where
    there is one, it is what is tested."""
    noise: float = 0.0
    """The share of wrong training labels."""
    validation: str = "training"
    """Where validation batches come from: the training set, as in the paper, or a tenth of it that is held out; for
    text the set's own validation part."""
    augment: bool = True
    precision: str = "bfloat16"
    compile: bool = True
    images: int | None = None
    """Training images or sentence pairs, the first ones of a permutation; None: all of them."""
    beta2: float = 0.999
    """Of Adam and AdamW."""
    average: int = 0
    """The mean of the weights after each of so many last epochs is what is tested; 0: the last weights."""

    def __post_init__(self) -> None:
        _one_of("data", self.data, (*IMAGES, *TEXT))
        _one_of("model", self.model, (*MODELS, *TRANSLATORS))
        if self.data in TEXT and self.model not in TRANSLATORS:
            raise ValueError(
                f"{self.data} is text, and {self.model} reads images; choose from {', '.join(TRANSLATORS)}"
            )
        if self.data in IMAGES and self.model not in MODELS:
            raise ValueError(f"{self.data} has images, and {self.model} reads text; choose from {', '.join(MODELS)}")
        if self.ema and self.average:
            raise ValueError("ema and average are two averages of the weights; give one of them")
        _one_of("method", self.method, letsam.list_methods())
        _one_of("base", self.base, BASES)
        _one_of("schedule", self.schedule, SCHEDULES)
        _one_of("validation", self.validation, ("training", "held-out"))
        _one_of("precision", self.precision, ("bfloat16", "float32"))
        for name in ("epochs", "batch", "lr"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give a positive number")
        for name in ("noise", "label_smoothing", "ema", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give a number from 0 to below 1")
        if "radius" in self.options:
            control(self.options["radius"], 1, self.seed)

    @property
    def identity(self) -> str:
        """Twelve hex digits that change with any setting."""
        settings = {name: value for name, value in asdict(self).items() if name not in LATER or value != LATER[name]}
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def scaled(self, scale: float) -> Training:
        """The same with fewer epochs: another run, with another identity."""
        if not 0 < scale <= 1:
            raise ValueError(f"--scale is {scale}; give a number above 0, at most 1")
        return replace(self, epochs=max(1, round(scale * self.epochs)))

    def __str__(self) -> str:
        noise = f", {100 * self.noise:g} % noise" if self.noise else ""
        return f"{self.method}, {self.model}, {self.data}{noise}, seed {self.seed}"


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

    def cell(self, row: str, column: str, seed: int) -> Training:
        """The run of a cell."""
        return _training(
            f"{self.name}, row {row}, column {column}", self.train, self.columns[column], self.rows[row], seed
        )

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

    kind: str
    tables: tuple[Table, ...]

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
        raise ValueError(f"no recipe is called {name!r}; {_hint(name, known)}")
    read = _toml(folder / name / "recipe.toml")
    if "figure" in read:
        return _figure(folder, name, read)
    _only(f"{name}/recipe.toml", read, ("title", "source", "seeds", "records", "train", "columns", "rows"))
    _all(name, read, ("title", "source", "seeds", "columns", "rows"))
    for row, settings in read["rows"].items():
        for column in settings.get("only", ()):
            _one_of(f"{name}/recipe.toml: a column of {row}", column, read["columns"])
    published, where = _published(folder / name / "paper.toml", read), read.get("records", REPRODUCTION)
    rest = read["columns"], read["rows"], published, where
    table = Table(name, read["title"], read["source"], tuple(read["seeds"]), read.get("train", {}), *rest)
    table.runs()
    return table


def load_choices(folder: Path) -> list[dict[str, str]]:
    """What the paper leaves open, and what the recipes do."""
    return _toml(folder / "choices.toml").get("choice", [])


def _figure(folder: Path, name: str, read: Settings) -> Figure:
    keys = ("title", "source", "seeds", "figure", "tables", "columns", "rows")
    _only(f"{name}/recipe.toml", read, keys)
    _all(name, read, keys)
    _one_of(f"{name}/recipe.toml: figure", read["figure"], FIGURES)
    tables = tuple(load_recipe(folder, table) for table in read["tables"])
    for table in tables:
        for what, known in (("rows", table.rows), ("columns", table.columns), ("seeds", table.every_seed)):
            for value in read[what]:
                if value not in known:
                    raise ValueError(f"{name}/recipe.toml: {table.name} has no {value!r} in its {what}")
    columns: dict[str, Settings] = {f"{table.name}-{column}": {} for table in tables for column in read["columns"]}
    rows: dict[str, Settings] = {row: {} for row in read["rows"]}
    facts = name, read["title"], read["source"], tuple(read["seeds"])
    return Figure(*facts, {}, columns, rows, {}, REPRODUCTION, read["figure"], tables)


def _published(path: Path, recipe: Settings) -> dict[tuple[str, str], tuple[float, float]]:
    """The cells of paper.toml; a recipe of our own has none."""
    cells = {}
    for row, columns in (_toml(path) if path.exists() else {}).items():
        for column, (mean, std) in columns.items():
            if row not in recipe["rows"] or column not in recipe["columns"]:
                raise ValueError(f"{path.parent.name}/paper.toml has a cell {row}, {column} that the recipe has not")
            cells[row, column] = (float(mean), float(std))
    return cells


def _training(where: str, train: Settings, column: Settings, row: Settings, seed: int) -> Training:
    settings = {**train, **_without(column, "seeds"), **_without(row, "only")}
    settings["options"] = {k: v for part in (train, column, row) for k, v in part.get("options", {}).items()}
    _only(where, settings, tuple(f.name for f in fields(Training) if f.name != "seed"))
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


def _only(where: str, settings: Settings, known: tuple[str, ...]) -> None:
    for key in settings:
        if key not in known:
            raise ValueError(f"{where}: no setting is called {key!r}; {_hint(key, list(known))}")


def _all(name: str, read: Settings, keys: tuple[str, ...]) -> None:
    for key in keys:
        if key not in read:
            raise ValueError(f"{name}/recipe.toml has no {key}")


def _one_of(name: str, value: str, choices: Any) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; {_hint(str(value), list(choices))}")


def _hint(word: str, choices: list[str]) -> str:
    close = difflib.get_close_matches(word, choices, 1)
    return f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(choices)}"
