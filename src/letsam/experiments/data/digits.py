"""The 1,797 digits of UCI's optical-recognition set: 1,000 to train on, 797 to test, label noise by choice."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib import resources

import numpy as np
import torch

SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
TRAIN, CLASSES = 1000, 10


@dataclass(frozen=True)
class Task:
    """Training and test tensors; `noisy` are the training indices whose label was replaced."""

    train_x: torch.Tensor
    train_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor
    noisy: torch.Tensor


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """All images, float32 (1797, 1, 8, 8) in [0, 1], and their classes, int64."""
    packed = resources.files(__package__).joinpath("digits.csv.gz").read_bytes()
    if hashlib.sha256(packed).hexdigest() != SHA256:
        raise RuntimeError("digits.csv.gz is damaged (wrong sha256): install letsam again")
    table = np.loadtxt(gzip.decompress(packed).decode().splitlines(), delimiter=",", dtype=np.int64)
    images = torch.from_numpy(table[:, :-1].astype(np.float32) / 16).reshape(-1, 1, 8, 8)
    return images, torch.from_numpy(table[:, -1].copy())


def add_noise(labels: torch.Tensor, fraction: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Give round(fraction·n) labels a uniformly random other class; returns the labels and those indices."""
    generator = np.random.default_rng([seed, 1])  # not the stream of the split
    count = round(fraction * len(labels))
    noisy = torch.from_numpy(np.sort(generator.permutation(len(labels))[:count]))
    shift = torch.from_numpy(generator.integers(1, CLASSES, size=count))
    labels = labels.clone()
    labels[noisy] = (labels[noisy] + shift) % CLASSES
    return labels, noisy


def task(seed: int, noise: float = 0.0) -> Task:
    """Split by `seed`, replace the share `noise` of the training labels; the test labels stay true."""
    images, labels = load()
    order = torch.from_numpy(np.random.default_rng([seed, 0]).permutation(len(labels)))
    train, test = order[:TRAIN], order[TRAIN:]
    train_y, noisy = add_noise(labels[train], noise, seed)
    return Task(images[train], train_y, images[test], labels[test], noisy)
