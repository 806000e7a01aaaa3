"""Fashion-MNIST from idx files, gzipped or plain: a folder of the user, or Debian's package dataset-fashion-mnist.

An idx file (yann.lecun.com/exdb/mnist) is big-endian: two zero bytes, the type (8: unsigned byte), the number of
dimensions, the size of each as four bytes, then the values. Debian compresses the files anew, so their hashes differ
from upstream's while the content is the same: shape and counts are what is checked.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import torch

from .raw import Obtained, check_labels

CLASSES = 10
DEBIAN = Path("usr/share/datasets/fashion-mnist")
IMAGES = {"train": 60_000, "test": 10_000}
FILES = {"train": "train", "test": "t10k"}  # the first word of the files' names


def read(source: Path | None) -> Obtained:
    """The set from a folder; without one, from where Debian's package puts it."""
    folder = _find(Path("/") if source is None else source)
    if folder is None:
        raise ValueError(
            f"no Fashion-MNIST in {source or Path('/') / DEBIAN}: install Debian's dataset-fashion-mnist, or give "
            f"--source a folder with {FILES['train']}-images-idx3-ubyte.gz and its three companions"
        )
    splits = {}
    for split, count in IMAGES.items():
        images = read_idx(_file(folder, f"{FILES[split]}-images-idx3-ubyte"), (count, 28, 28))
        labels = read_idx(_file(folder, f"{FILES[split]}-labels-idx1-ubyte"), (count,)).long()
        check_labels("Fashion-MNIST", labels, CLASSES)
        splits[split] = images.unsqueeze(1), labels
    return Obtained(splits, {"kind": "idx files", "name": folder.resolve().name})


def read_idx(path: Path, shape: tuple[int, ...]) -> torch.Tensor:
    """The uint8 tensor of an idx file, which has to have this shape."""
    header = b"".join(size.to_bytes(4, "big") for size in (0x800 + len(shape), *shape))
    length = len(header) + math.prod(shape)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(length + 1)  # never more, whatever a gzip file unfolds to
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}): get it again") from None
    if content[: len(header)] != header:
        raise ValueError(f"{path} is no idx file of shape {shape}: it is damaged or another file, get it again")
    if len(content) != length:
        raise ValueError(f"{path} holds more or less than {shape} values: it is damaged, get it again")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=len(header)).view(shape)


def _find(source: Path) -> Path | None:
    names = [f"{FILES['train']}-images-idx3-ubyte{suffix}" for suffix in ("", ".gz")]
    folders = (source, source / DEBIAN)
    return next((folder for folder in folders if any((folder / name).is_file() for name in names)), None)


def _file(folder: Path, name: str) -> Path:
    path = next((folder / (name + suffix) for suffix in ("", ".gz") if (folder / (name + suffix)).is_file()), None)
    if path is None:
        raise ValueError(f"{folder / name} (or .gz) is missing: the set is not complete, get it again")
    return path
