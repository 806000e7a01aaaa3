"""A set as it was read from its source, before it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Splits = dict[str, tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Obtained:
    """Images and labels of each split, where they came from, and the file that was fetched only for them."""

    splits: Splits
    origin: dict[str, Any]
    fetched: Path | None = None


def check_labels(title: str, labels: torch.Tensor, classes: int) -> None:
    """Every label is a class."""
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"{title} has a label that is not in 0 to {classes - 1}: the file is damaged, get it again")
