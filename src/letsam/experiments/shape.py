"""The shape of recipe.toml and paper.toml: what is wrong is told with the file and the key."""

from __future__ import annotations

from typing import Any

from .training import hint

Settings = dict[str, Any]
NAMES: dict[type, str] = {dict: "a table, { … }", list: "a list, [ … ]", str: "a text"}


def only(where: str, settings: Settings, known: tuple[str, ...]) -> None:
    """No other keys."""
    for key in settings:
        if key not in known:
            raise ValueError(f"{where}: no setting is called {key!r}; {hint(key, list(known))}")


def need(where: str, settings: Settings, keys: tuple[str, ...]) -> None:
    """All of these keys."""
    for key in keys:
        if key not in settings:
            raise ValueError(f"{where} has no {key}")


def kind(where: str, settings: Settings, kinds: dict[str, type]) -> None:
    """Values of these kinds, where there are any."""
    for key, wanted in kinds.items():
        if key in settings and not isinstance(settings[key], wanted):
            raise ValueError(f"{where}: {key} is {settings[key]!r}; give {NAMES[wanted]}")


def parts(where: str, read: Settings) -> None:
    """The tables of a recipe have tables inside, and each has the kinds of values that belong there."""
    kinds = dict.fromkeys(("title", "source", "records"), str) | dict.fromkeys(("train", "columns", "rows"), dict)
    kind(where, read, {**kinds, "search": dict})
    for name in ("columns", "rows"):
        kind(f"{where}, {name}", read[name], dict.fromkeys(read[name], dict))
    for name, settings in {"train": read.get("train", {}), **read["columns"], **read["rows"]}.items():
        kind(f"{where}, {name}", settings, {"options": dict, "only": list})
    for name, settings in {"": read, **read["columns"]}.items():
        seeds(f"{where}, {name}" if name else where, settings)


def seeds(where: str, settings: Settings) -> None:
    """Different whole numbers."""
    given = settings.get("seeds", [0])
    whole = isinstance(given, list) and all(type(seed) is int and seed >= 0 for seed in given)
    if not whole or not given or len(set(given)) < len(given):
        raise ValueError(f"{where}: seeds is {given!r}; give different whole numbers from 0, such as [0, 1, 2]")


def cell(where: str, value: Any) -> tuple[float, float]:
    """A published cell."""
    if not isinstance(value, list) or len(value) != 2 or not all(type(x) in (int, float) for x in value):
        raise ValueError(f"{where} is {value!r}; give [mean, standard deviation]")
    return float(value[0]), float(value[1])
