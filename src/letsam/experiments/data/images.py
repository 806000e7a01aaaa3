"""A set in memory: uint8 images and their labels on one device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ...checks import one_of
from . import digits
from .raw import Splits
from .store import Damaged, channel_statistics, place_of, read_facts, read_split

STORED = ("cifar10", "cifar100", "fashion-mnist")


@dataclass(frozen=True)
class Images:
    """Images (N, C, H, W) uint8 and labels int64 on one device; mean and std of the training pixels over 255."""

    images: torch.Tensor
    labels: torch.Tensor
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: torch.Tensor) -> Images:
        """Some of the images; mean and std stay those of the whole training set."""
        indices = indices.to(self.labels.device)
        return replace(self, images=self.images[indices], labels=self.labels[indices])

    def with_labels(self, labels: torch.Tensor) -> Images:
        """The same images with other labels."""
        return replace(self, labels=labels)


def load(name: str, folder: Path | None = None, device: torch.device | str = "cpu", split: str = "train") -> Images:
    """A set that `letsam data` has stored, checked against its hash, or the digits, which come with letsam."""
    one_of("name", name, (*STORED, "digits"))  # imagenet does not fit into memory: see imagenet_batches
    one_of("split", split, ("train", "test"))
    if name == "digits":
        return _load_digits(device, split)
    place = place_of(folder)
    try:
        facts = read_facts(place, name)
    except Damaged as damage:
        raise ValueError(f"{damage}: run letsam data {name} to get it anew") from None
    if facts is None:
        raise ValueError(
            f"there is no {name} in {place}: run letsam data {name} first, or set LETSAM_DATA to where it is"
        )
    images, labels = read_split(place, name, split, device)
    return Images(images, labels, facts["classes"], tuple(facts["mean"]), tuple(facts["std"]))


def digit_splits() -> Splits:
    """The digits as the other sets are: split by seed 0, pixel values 0 to 16 as UCI has them."""
    task = digits.task(seed=0)
    parts = {"train": (task.train_x, task.train_y), "test": (task.test_x, task.test_y)}
    return {split: ((x * 16).round().to(torch.uint8), y) for split, (x, y) in parts.items()}


def _load_digits(device: torch.device | str, split: str) -> Images:
    splits = digit_splits()
    mean, std = channel_statistics(splits["train"][0])
    images, labels = splits[split]
    return Images(images.to(device), labels.to(device), digits.CLASSES, tuple(mean), tuple(std))
