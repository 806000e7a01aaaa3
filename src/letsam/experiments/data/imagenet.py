"""ImageNet from the usual class folders, train/<wnid>/*.JPEG and val/<wnid>/*.JPEG: an index, no copy of the images.

Classes are numbered in the order of their folder names, as everybody does. The index is a JSON file in the data
folder: the root, the classes, the files of each, and a hash of the list, which says whether two machines have the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..record import read_json, write_json
from .disk import writing
from .store import FORMAT, Facts, place_of

FILE = "imagenet.json"
SPLITS = {"train": "train", "test": "val"}
SUFFIXES = (".jpeg", ".jpg", ".png")
CLASSES, IMAGES = 1000, {"train": 1_281_167, "test": 50_000}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the training images, as published with every ResNet

Listing = dict[str, dict[str, list[str]]]  # split, class, file names


@dataclass(frozen=True)
class Index:
    """Paths below the root and labels of each split. The paths are bytes in one array, which worker processes share:
    a list of a million strings would be copied into each of them, by the reference counts alone."""

    root: Path
    classes: tuple[str, ...]
    paths: dict[str, np.ndarray[Any, Any]]
    labels: dict[str, torch.Tensor]
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD


@dataclass(frozen=True)
class Files:
    """One split of the index, of which a run takes a part or changes the labels: what Images is in memory."""

    index: Index
    split: str

    @property
    def labels(self) -> torch.Tensor:
        """Of every image."""
        return self.index.labels[self.split]

    @property
    def classes(self) -> int:
        """How many there are."""
        return len(self.index.classes)

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: torch.Tensor) -> Files:
        """Some of the images."""
        paths = {**self.index.paths, self.split: self.index.paths[self.split][indices.numpy()]}
        return replace(self, index=replace(self.index, paths=paths)).with_labels(self.labels[indices])

    def with_labels(self, labels: torch.Tensor) -> Files:
        """The same images with other labels."""
        return replace(self, index=replace(self.index, labels={**self.index.labels, self.split: labels}))


def scan(root: Path) -> Listing:
    """The files of every class of every split, sorted."""
    listing = {split: _scan_split(root, folder) for split, folder in SPLITS.items()}
    if unknown := sorted(listing["test"].keys() - listing["train"]):
        raise ValueError(
            f"{root / 'val' / unknown[0]} has no counterpart in train/: sort val/ into the classes of train/"
        )
    return listing


def save(place: Path, root: Path, listing: Listing) -> Facts:
    """Write the index; returns its facts."""
    index = {"format": FORMAT, "root": str(root.resolve()), "splits": listing, "sha256": listing_hash(listing)}
    with writing(place):
        write_json(place / FILE, index)
    return describe(index)


def read(place: Path) -> Facts | None:
    """The stored index, checked: its hash, and that the root is still there; None where there is none."""
    if not (place / FILE).exists():
        return None
    again = "run letsam data imagenet --source FOLDER again"
    try:
        index: Facts = read_json(place / FILE)
        good = index["format"] == FORMAT and listing_hash(index["splits"]) == index["sha256"]
        root = Path(index["root"])
    except (ValueError, KeyError, TypeError, AttributeError):
        good, root = False, Path()
    if not good:
        raise ValueError(f"{place / FILE} is damaged: {again}")
    if not root.is_dir():
        raise ValueError(f"ImageNet is no longer in {root}: {again}")
    return index


def load(folder: Path | None = None) -> Index:
    """The index that `letsam data imagenet` has stored."""
    place = place_of(folder)
    index = read(place)
    if index is None:
        raise ValueError(f"there is no index of ImageNet in {place}: run letsam data imagenet --source FOLDER first")
    classes = tuple(index["splits"]["train"])
    number = {name: i for i, name in enumerate(classes)}
    paths, labels = {}, {}
    for split, files in index["splits"].items():
        paths[split] = np.array([path.encode() for path in _paths(split, files)])
        labels[split] = torch.tensor([number[name] for name, names in files.items() for _ in names])
    return Index(Path(index["root"]), classes, paths, labels)


def describe(index: Facts) -> Facts:
    """What there is to say about it, in the form of the other sets."""
    listing: Listing = index["splits"]
    counts = {split: sum(map(len, files.values())) for split, files in listing.items()}
    whole = len(listing["train"]) == CLASSES and counts == IMAGES
    return {
        "name": "imagenet",
        "classes": len(listing["train"]),
        "mean": MEAN,
        "std": STD,
        "splits": {split: {"images": count, "shape": None, "pixels_sha256": None} for split, count in counts.items()},
        "source": {
            "kind": "class folders" if whole else "class folders of a part of ImageNet",
            "name": index["root"],
            "sha256 of the list": index["sha256"],
        },
    }


def listing_hash(listing: Listing) -> str:
    """sha256 of the paths, a line each."""
    digest = hashlib.sha256()
    for split, files in listing.items():
        for path in _paths(split, files):
            digest.update(f"{path}\n".encode())
    return digest.hexdigest()


def _scan_split(root: Path, folder: str) -> dict[str, list[str]]:
    top = root / folder
    if not top.is_dir():
        raise ValueError(f"there is no {top}: give --source a folder with train/<wnid>/*.JPEG and val/<wnid>/*.JPEG")
    classes = sorted(path.name for path in top.iterdir() if path.is_dir())
    if not classes:
        raise ValueError(f"{top} has no class folders: sort its images into {folder}/<wnid>/")
    files = {name: sorted(p.name for p in (top / name).iterdir() if p.suffix.lower() in SUFFIXES) for name in classes}
    if empty := [name for name in classes if not files[name]]:
        raise ValueError(f"{top / empty[0]} has no images: fill it, or remove the folder")
    return files


def _paths(split: str, files: dict[str, list[str]]) -> Iterable[str]:
    return (f"{SPLITS[split]}/{name}/{file}" for name, names in files.items() for file in names)
