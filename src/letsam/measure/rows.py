"""Rows of a long measurement in a folder: what is finished survives a kill, and the next run goes on from there.

header.json says what is measured, row-0003.json is the fourth row. A file is written whole or not at all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..files import write

Header = dict[str, Any]


class Rows:
    """The rows of the measurement that the header describes; ValueError if the folder has those of another."""

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        found = _read(folder / "header.json")
        if found is None and any(folder.glob("row-*.json")):
            raise ValueError(f"{folder} has rows but no header that can be read; choose another folder")
        if found is None:
            _write(folder / "header.json", header)
        elif found != header:
            differs = ", ".join(key for key in header if not isinstance(found, dict) or found.get(key) != header[key])
            raise ValueError(f"{folder} has another measurement ({differs} differ); choose another folder")

    def __getitem__(self, i: int) -> Any:
        """The i-th row; None if it is not finished."""
        return _read(self._path(i))

    def __setitem__(self, i: int, row: Any) -> None:
        _write(self._path(i), row)

    def _path(self, i: int) -> Path:
        return self.folder / f"row-{i:04d}.json"


def read_header(folder: Path) -> Header:
    """What the folder has, or ValueError."""
    header = _read(folder / "header.json")
    if not isinstance(header, dict):
        raise ValueError(f"{folder} has no measurement: there is no header.json that can be read")
    return header


def _read(path: Path) -> Any:
    """None if it is missing or damaged: such a row is measured again, such a header is told."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _write(path: Path, content: Any) -> None:
    write(path, json.dumps(content, allow_nan=False) + "\n")
