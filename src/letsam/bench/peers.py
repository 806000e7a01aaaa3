"""Other implementations of SAM, from a file of the user's or from an installed package."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

PACKAGE = "pytorch_optimizer"


def load_peers(given: tuple[str, ...]) -> dict[str, Any]:
    """The classes of PATH:CLASS arguments, by a short name; ValueError if one cannot be used."""
    peers: dict[str, Any] = {}
    for text in given:
        path, _, name = text.rpartition(":")
        if not path or not name.isidentifier():
            raise ValueError(f"--peer {text}: give a file and a class, such as sam.py:SAM")
        short = f"{Path(path).stem}.{name}"
        if short in peers:
            raise ValueError(f"--peer {text}: another peer is called {short} too; rename one of the files")
        peers[short] = _load(text, Path(path), name)
    return peers


def installed_peer() -> tuple[Any | None, str]:
    """SAM of pytorch_optimizer, or None and why it is not timed."""
    try:
        return importlib.import_module(PACKAGE).SAM, ""
    except (ImportError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == PACKAGE:
            return None, f"{PACKAGE} is not installed, so its SAM is not timed: pip install {PACKAGE}"
        return None, f"{PACKAGE} does not work here, so its SAM is not timed: {' '.join(str(error).split())}"


def _load(text: str, path: Path, name: str) -> Any:
    if not path.is_file():
        raise ValueError(f"--peer {text}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"letsam_peer_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"--peer {text}: {path} is no Python file; give one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # it is the user's code: anything may be wrong with it
        raise ValueError(f"--peer {text}: {path} cannot be imported: {type(error).__name__}: {error}") from None
    found = getattr(module, name, None)
    if not isinstance(found, type):
        raise ValueError(f"--peer {text}: {path} has no class {name}")
    for method in ("first_step", "second_step"):
        if not callable(getattr(found, method, None)):
            raise ValueError(f"--peer {text}: {name} has no method {method}; it has to look like davda54/sam's SAM")
    return found
