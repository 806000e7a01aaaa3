"""Checkpoints without pickle: one safetensors file, tensors by number, everything else as JSON in its header.

Written beside the old one, flushed, renamed: there is always a whole one, and a hash finds damage. What comes back is
what was saved: nested dicts (with keys that are numbers, too), lists, tuples, numbers, strings, None, and tensors on
the CPU.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from ..files import write

KEY = "letsam"


class Unusable(ValueError):
    """A file that is damaged, or a checkpoint of something else: nobody can go on from it."""


def save_checkpoint(path: Path, state: Any) -> None:
    """Write all or nothing."""
    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps(_taken_apart(state, tensors))
    write(path, to_bytes(tensors, {KEY: skeleton, "sha256": _hash(skeleton, tensors)}))


def load_checkpoint(path: Path) -> Any:
    """What was saved; Unusable with one line if the file is damaged or something else, OSError if it cannot be read."""
    try:
        path.open("rb").close()  # says in words what is wrong with the disk, which safe_open does not
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if metadata["sha256"] != _hash(metadata[KEY], tensors):
            raise ValueError
        return _put_together(json.loads(metadata[KEY]), tensors)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise Unusable(f"{path} is not a whole checkpoint ({type(error).__name__})") from None


def epochs_of(path: Path) -> int:
    """How many epochs a checkpoint of a run has behind it, by its header alone; 0 if there is none to read."""
    try:
        with safe_open(path, "pt") as file:
            state = _put_together(json.loads((file.metadata() or {})[KEY]), defaultdict(torch.Tensor))
        return len(state["rows"])
    except (SafetensorError, OSError, KeyError, ValueError, TypeError):
        return 0


def _hash(skeleton: str, tensors: dict[str, Tensor]) -> str:
    """Of everything in the file; bytes are looked at where they lie."""
    state = hashlib.sha256(skeleton.encode())
    for key in sorted(tensors):
        state.update(tensors[key].reshape(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()


def _taken_apart(x: Any, tensors: dict[str, Tensor]) -> Any:
    """x in JSON: a tensor is its number, and what JSON does not know has its kind beside it."""
    if isinstance(x, Tensor):
        key = str(len(tensors))
        tensors[key] = x.detach().cpu().contiguous().clone()  # safetensors refuses memory that two tensors share
        return {"tensor": key}
    if isinstance(x, dict):
        return {"dict": [[_taken_apart(k, tensors), _taken_apart(v, tensors)] for k, v in x.items()]}
    if isinstance(x, tuple | list):
        return {type(x).__name__: [_taken_apart(v, tensors) for v in x]}
    if x is None or isinstance(x, bool | int | float | str):
        return x
    raise TypeError(f"a checkpoint cannot hold a {type(x).__name__}")


def _put_together(x: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(x, dict):
        return x
    ((kind, content),) = x.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {_put_together(k, tensors): _put_together(v, tensors) for k, v in content}
    return {"tuple": tuple, "list": list}[kind](_put_together(v, tensors) for v in content)
