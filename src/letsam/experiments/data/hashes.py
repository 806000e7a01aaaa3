"""Hashes of files and tensors, in the hexadecimal form that is published beside data sets."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch


def file_hash(path: Path, algorithm: str = "sha256") -> str:
    """The hash of a file's bytes. md5 is no defence against malice; it is what the CIFAR authors published."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def pixel_hash(images: torch.Tensor) -> str:
    """sha256 of uint8 images (N, C, H, W) as NHWC bytes, the order in which picture files hold them."""
    return hashlib.sha256(images.permute(0, 2, 3, 1).contiguous().cpu().numpy().data).hexdigest()


def label_hash(labels: torch.Tensor) -> str:
    """sha256 of labels as little-endian int64."""
    return hashlib.sha256(labels.cpu().numpy().astype("<i8").data).hexdigest()
