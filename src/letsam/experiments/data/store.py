"""Stored sets. A set is a folder `<place>/<name>` with two files:

    images.safetensors   {train,test}_images uint8 (N, C, H, W), {train,test}_labels int64
    source.json          where it came from, counts, mean and std, hashes of the pixels and of images.safetensors

Text has a pairs.safetensors or sentences.safetensors in place of the images (see pairs.py, sentences.py).

The folder is made elsewhere and renamed into place, so a set is there whole or not at all. NCHW is what the models
take and what CIFAR's own files hold; safetensors is read straight to the device and runs no code.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ...files import write
from ..folder import locked
from ..record import read_json, write_json
from .disk import writing
from .hashes import file_hash, label_hash, pixel_hash
from .raw import Splits

FORMAT = 1
TENSORS, FACTS = "images.safetensors", "source.json"

Facts = dict[str, Any]


class Damaged(ValueError):
    """The stored set is not what was stored."""


def place_of(folder: Path | None) -> Path:
    """Where sets live: the folder given, else $LETSAM_DATA, else ~/.cache/letsam."""
    if folder is not None:
        return folder.expanduser()
    return Path(os.environ.get("LETSAM_DATA") or "~/.cache/letsam").expanduser()


@contextmanager
def opened(place: Path) -> Iterator[None]:
    """The place exists, is ours alone until the end, and free of what a killed process left."""
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
        (place / ".lock").touch()
    with locked(place):
        for leftover in (*place.glob(".new-*"), *place.glob(".old-*")):
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def describe(name: str, splits: Splits, classes: int, origin: dict[str, Any]) -> Facts:
    """What there is to say about a set; mean and std are those of the training pixels, in units of 255."""
    mean, std = channel_statistics(splits["train"][0])
    parts = {
        split: {
            "images": len(images),
            "shape": list(images.shape[1:]),
            "pixels_sha256": pixel_hash(images),
            "labels_sha256": label_hash(labels),
        }
        for split, (images, labels) in splits.items()
    }
    return {"name": name, "classes": classes, "mean": mean, "std": std, "splits": parts, "source": origin}


def channel_statistics(images: torch.Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, exact: from the counts of the 256 values."""
    values = torch.arange(256, dtype=torch.float64) / 255
    means, stds = [], []
    for channel in images.unbind(1):
        share = torch.bincount(channel.reshape(-1), minlength=256).double() / channel.numel()
        mean = (share * values).sum()
        means.append(mean.item())
        stds.append((share * (values - mean).square()).sum().sqrt().item())
    return means, stds


def save(place: Path, splits: Splits, facts: Facts) -> Facts:
    """Store a set of images under its name."""
    named = {f"{split}_images": images.contiguous() for split, (images, _) in splits.items()}
    named |= {f"{split}_labels": labels for split, (_, labels) in splits.items()}
    return save_tensors(place, named, facts, TENSORS)


def save_tensors(place: Path, named: dict[str, torch.Tensor], facts: Facts, file: str) -> Facts:
    """Store a set under its name; an older one makes way when the new one is complete."""
    from safetensors.torch import save as pack

    packed = pack(named)
    facts = {"format": FORMAT, **facts, "file_sha256": hashlib.sha256(packed).hexdigest()}
    with writing(place):
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=place))
        try:
            fresh.chmod(0o755)
            write(fresh / file, packed)
            write_json(fresh / FACTS, facts)
            _put_in_place(fresh, place / facts["name"])
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return facts


def read_facts(place: Path, name: str, file: str = TENSORS) -> Facts | None:
    """The facts of a stored set after a check of its hash; None where there is none."""
    folder = place / name
    if not os.path.lexists(folder):
        return None
    if not (folder / FACTS).is_file():
        raise ValueError(f"{folder} is no set of letsam (no {FACTS} in it): move it, or choose another --folder")
    try:
        facts: Facts = read_json(folder / FACTS)
        if facts["format"] != FORMAT:
            raise Damaged(f"{folder} was stored by another version of letsam")
        if file_hash(folder / file) != facts["file_sha256"]:
            raise Damaged(f"{folder / file} is damaged (wrong sha256)")
    except Damaged:
        raise
    except (OSError, ValueError, KeyError, TypeError):
        raise Damaged(f"{folder} is damaged ({FACTS} or {file} cannot be read)") from None
    return facts


def read_split(place: Path, name: str, split: str, device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels of a set that `read_facts` has checked."""
    from safetensors import safe_open

    with safe_open(place / name / TENSORS, framework="pt", device=str(device)) as file:
        return file.get_tensor(f"{split}_images"), file.get_tensor(f"{split}_labels")


def _put_in_place(fresh: Path, final: Path) -> None:
    if not os.path.lexists(final):
        fresh.rename(final)
        return
    old = Path(tempfile.mkdtemp(prefix=".old-", dir=final.parent))
    final.rename(old / final.name)
    fresh.rename(final)
    shutil.rmtree(old, ignore_errors=True)
