"""Lists of tensors as the kernels see them: rows of addresses on the device.

Rows are kept: weights and the gradients of a captured pass never move, and those of an eager one are mostly found where
earlier ones were.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

BLOCK = 4096
_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


class Row(NamedTuple):
    """A list as the kernels see it: the addresses on the device, and the layout."""

    addresses: Tensor
    type: Any
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


class Table:
    """Lists that go together: tensor i of each has the same layout."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = [row.addresses for row in rows]
        self.types = [row.type for row in rows]
        self.sizes = rows[0].sizes
        self.blocks, *self.places = _blocks(self.sizes, self.rows[0].device)


_rows: dict[Any, Row | None] = {}


def table(*lists: Sequence[Tensor]) -> Table | None:
    """The table of these lists, None if foreach has to do it: other types, strided or unaligned tensors."""
    rows = [_row(some) for some in lists]
    fitting = [row for row in rows if row is not None and row[2:] == rows[0][2:]] if rows[0] is not None else []
    return Table(fitting) if len(fitting) == len(rows) else None


def _row(some: Sequence[Tensor]) -> Row | None:
    """Known by all that decides whether a list fits: other tensors may lie at the same addresses later."""
    addresses, strides = tuple([x.data_ptr() for x in some]), tuple([x.stride() for x in some])
    key = addresses, tuple([x.dtype for x in some]), tuple([x.shape for x in some]), strides
    if key not in _rows:
        if len(_rows) >= 256:  # gradients that keep moving
            _rows.clear()
        _rows[key] = _made(some, addresses) if _fits(some) else None
    return _rows[key]


def _made(some: Sequence[Tensor], addresses: tuple[int, ...]) -> Row:
    sizes = tuple(x.numel() for x in some)
    # The stride of a dimension of length 1 says nothing: a 1×1 filter has several, and one order in memory.
    strides = tuple(tuple(step for step, n in zip(x.stride(), x.shape, strict=True) if n > 1) for x in some)
    return Row(on_device(addresses, some[0].device), _TYPES[some[0].dtype], sizes, strides)


def _fits(some: Sequence[Tensor]) -> bool:
    return some[0].dtype in _TYPES and all(
        x.dtype == some[0].dtype and x.data_ptr() % 16 == 0 and x.numel() > 0 and _dense(x.shape, x.stride())
        for x in some
    )


@lru_cache(maxsize=4096)
def _dense(shape: torch.Size, stride: tuple[int, ...]) -> bool:
    """Without gaps, whatever the order of the dimensions: only then does empty_like keep the strides."""
    x = torch.empty_strided(shape, stride, device="meta")
    return torch.empty_like(x).stride() == stride


def on_device(numbers: Any, device: torch.device) -> Tensor:
    """From pageable memory, which CUDA copies before it returns: the host does not wait, and pins nothing."""
    return torch.tensor(numbers, dtype=torch.int64).to(device, non_blocking=True)


@lru_cache(maxsize=64)
def _blocks(sizes: tuple[int, ...], device: torch.device) -> tuple[int, Tensor, Tensor, Tensor]:
    """Which tensor a program works on, where it begins in it, and how long each tensor is."""
    tensors = [i for i, n in enumerate(sizes) for _ in range(0, n, BLOCK)]
    starts = [start for n in sizes for start in range(0, n, BLOCK)]
    return len(tensors), on_device(tensors, device), on_device(starts, device), on_device(sizes, device)
