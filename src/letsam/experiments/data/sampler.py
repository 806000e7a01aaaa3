"""The order of the samples as a function of (seed, epoch): nothing to save for a resume, the same on every device."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import torch

from ...checks import within


def perm(seed: int, epoch: int, n: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """The order of an epoch, a permutation of 0 to n − 1; drawn on the CPU whatever the device."""
    return _order(seed, epoch, n).to(device, copy=True)


def batch_indices(
    seed: int, epoch: int, i: int, batch: int, n: int, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """The samples of batch i of an epoch; the last one has what is left. For batches of one size use i < n // batch."""
    within("i", i, 0, batches(batch, n) - 1)
    return _order(seed, epoch, n)[i * batch : (i + 1) * batch].to(device, copy=True)


def batches(batch: int, n: int) -> int:
    """Batches in an epoch, the last short one included."""
    within("batch", batch, 1, n)
    return -(-n // batch)


@lru_cache(maxsize=4)  # an epoch asks for its order once a batch; validation batches have an order of their own
def _order(seed: int, epoch: int, n: int) -> torch.Tensor:
    mixed = hashlib.sha256(f"{seed}/{epoch}".encode()).digest()  # (1, 0) and (0, 1) have nothing in common
    generator = torch.Generator().manual_seed(int.from_bytes(mixed[:8], "little") >> 1)
    return torch.randperm(n, generator=generator)
