"""Triton kernels over lists of tensors: one launch and one pass over memory, whatever the number of tensors.

tensors.py, space.py and radius/jacobian.py have the foreach version of each, which is the definition; here is what
beats it on a GPU. tables.py turns lists into what a kernel can read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .tables import BLOCK, Table, on_device, table

__all__ = [
    "Table",
    "across_",
    "adam",
    "adaptive",
    "add_",
    "carry_",
    "move_",
    "products",
    "squares",
    "surrogate_",
    "table",
]


def _where_it_lies(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Triton launches on the current device, which need not be that of the lists."""

    @wraps(launch)
    def launched(where: Table, *arguments: Any) -> Any:
        with torch.cuda.device_of(where.rows[0]):
            return launch(where, *arguments)

    return launched


@_where_it_lies
def move_(where: Table, s: Tensor, done: Tensor) -> None:
    """Of (θ, backup, u): backup ← θ and θ ← θ + s·u; done ← 1, an int32, to be seen if the host was interrupted."""
    theta, backup, u = where.rows
    types = {"THETA": where.types[0], "U": where.types[2]}
    _move[(where.blocks,)](theta, backup, u, *where.places, s, done, KEEP=True, BLOCK=BLOCK, **types)


@_where_it_lies
def add_(where: Table, s: Tensor) -> None:
    """Of (a, b): a ← a + s·b."""
    a, b = where.rows
    types = {"THETA": where.types[0], "U": where.types[1]}
    _move[(where.blocks,)](a, a, b, *where.places, s, s, KEEP=False, BLOCK=BLOCK, **types)


@_where_it_lies
def carry_(where: Table, keep: float, finite: Tensor) -> None:
    """Of (new, old): new ← new + keep·old if finite, else old."""
    types = {"NEW": where.types[0], "OLD": where.types[1]}
    _carry[(where.blocks,)](*where.rows, *where.places, keep, finite, BLOCK=BLOCK, **types)


@_where_it_lies
def across_(where: Table, found: Tensor) -> None:
    """Of (a, b): b ← (a − b) − s·a with s = ⟨a − b, a⟩/⟨a, a⟩, 0 if a is; found: their products."""
    types = dict(zip("AB", where.types, strict=True))
    _across[(where.blocks,)](*where.rows, *where.places, found, BLOCK=BLOCK, **types)


@_where_it_lies
def surrogate_(where: Table, alpha: float, found: Tensor) -> None:
    """Of (g, ĝ): ĝ ← ĝ − α(g − cĝ) with c = ⟨g,ĝ⟩/⟨ĝ,ĝ⟩, 0 if ĝ is; found: their products."""
    types = dict(zip(("G", "H"), where.types, strict=True))
    _surrogate[(where.blocks,)](*where.rows, *where.places, alpha, found, BLOCK=BLOCK, **types)


@_where_it_lies
def adam(where: Table, c1: Tensor, c2: Tensor, rate: float, betas: tuple[float, float], eps: float) -> None:
    """Of (b, g, m, v, out): out ← J·b, J as in radius/jacobian.py; c: the corrections of each tensor."""
    types = dict(zip(("B", "G", "M", "V", "OUT"), where.types, strict=True))
    numbers = (rate, betas[0], 1 - betas[0], betas[1], 1 - betas[1], eps)
    _adam[(where.blocks,)](*where.rows, *where.places, c1, c2, *numbers, BLOCK=BLOCK, **types)


@_where_it_lies
def squares(where: Table) -> Tensor:
    """Of (a,): ‖a‖² in float64."""
    out = where.rows[0].new_empty(where.blocks, dtype=torch.float32)
    _squares[(where.blocks,)](*where.rows, *where.places, out, A=where.types[0], BLOCK=BLOCK)
    return out.sum(dtype=torch.float64)


@_where_it_lies
def products(where: Table) -> Tensor:
    """Of (a, b): ⟨a,a⟩, ⟨a,b⟩ and ⟨b,b⟩ in float64."""
    out = where.rows[0].new_empty((where.blocks, 3), dtype=torch.float32)
    _products[(where.blocks,)](*where.rows, *where.places, out, A=where.types[0], B=where.types[1], BLOCK=BLOCK)
    return out.sum(0, dtype=torch.float64)


@_where_it_lies
def adaptive(where: Table, filters: tuple[int, ...], xi: float) -> Tensor:
    """Of (θ, g, u): u ← T²g; returns ‖Tg‖² and ‖u‖². filters: how many each tensor has, 0: T is element-wise."""
    count, tensor_of, index_of, length_of, first_of = _filters(where.sizes, filters, where.rows[0].device)
    types = dict(zip(("THETA", "G", "U"), where.types, strict=True))
    norms = where.rows[0].new_empty(max(count, 1), dtype=torch.float32)
    if count:
        theta = where.rows[0]
        _filter_norms[(count,)](theta, tensor_of, index_of, length_of, norms, THETA=where.types[0], BLOCK=1024)
    out = where.rows[0].new_empty((where.blocks, 2), dtype=torch.float32)
    _adaptive[(where.blocks,)](*where.rows, *where.places, norms, length_of, first_of, xi, out, BLOCK=BLOCK, **types)
    return out.sum(0, dtype=torch.float64)


@lru_cache(maxsize=64)
def _filters(
    sizes: tuple[int, ...], filters: tuple[int, ...], device: torch.device
) -> tuple[int, Tensor, Tensor, Tensor, Tensor]:
    """For each filter its tensor and its number there; for each tensor the length of a filter and its first one."""
    tensors = [i for i, n in enumerate(filters) for _ in range(n)]
    indices = [k for n in filters for k in range(n)]
    lengths = [size // n if n else 0 for size, n in zip(sizes, filters, strict=True)]
    firsts = [sum(filters[:i]) for i in range(len(filters))]
    lists = (on_device(x, device) for x in (tensors, indices, lengths, firsts))
    return len(tensors), *lists  # type: ignore[return-value]


@triton.jit
def _place(tensor_of, start_of, size_of, BLOCK: tl.constexpr):
    """The tensor of this program, the offsets of its block there, whether all of them lie inside, the tensor's size."""
    i, start = tl.load(tensor_of + tl.program_id(0)), tl.load(start_of + tl.program_id(0))
    size = tl.load(size_of + i)
    return i, tl.multiple_of(start, BLOCK) + tl.arange(0, BLOCK), start + BLOCK <= size, size


@triton.jit
def _values(addresses, i, offsets, whole, size, TYPE: tl.constexpr):
    """A block of tensor i; without a mask where the block is whole, so that loads are as wide as they can be."""
    p = tl.multiple_of(tl.load(addresses + i).to(tl.pointer_type(TYPE)), 16)
    if whole:
        x = tl.load(p + offsets)
    else:
        x = tl.load(p + offsets, mask=offsets < size, other=0.0)
    return x


@triton.jit
def _put(addresses, i, offsets, whole, size, x, TYPE: tl.constexpr):
    p = tl.multiple_of(tl.load(addresses + i).to(tl.pointer_type(TYPE)), 16)
    if whole:
        tl.store(p + offsets, x.to(TYPE))
    else:
        tl.store(p + offsets, x.to(TYPE), mask=offsets < size)


@triton.jit
def _move(
    theta,
    backup,
    u,
    tensor_of,
    start_of,
    size_of,
    s,
    done,
    KEEP: tl.constexpr,
    THETA: tl.constexpr,
    U: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i, offsets, whole, size = _place(tensor_of, start_of, size_of, BLOCK)
    x = _values(theta, i, offsets, whole, size, THETA)
    y = _values(u, i, offsets, whole, size, U)
    if KEEP:
        _put(backup, i, offsets, whole, size, x, THETA)
        tl.store(done, 1)
    _put(theta, i, offsets, whole, size, x.to(tl.float32) + tl.load(s).to(tl.float32) * y.to(tl.float32), THETA)


@triton.jit
def _carry(
    new, old, tensor_of, start_of, size_of, keep, finite, NEW: tl.constexpr, OLD: tl.constexpr, BLOCK: tl.constexpr
):
    i, offsets, whole, size = _place(tensor_of, start_of, size_of, BLOCK)
    x = _values(new, i, offsets, whole, size, NEW).to(tl.float32)
    y = _values(old, i, offsets, whole, size, OLD).to(tl.float32)
    _put(new, i, offsets, whole, size, tl.where(tl.load(finite) != 0, x + keep * y, y), NEW)


@triton.jit
def _across(a, b, tensor_of, start_of, size_of, found, A: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr):
    i, offsets, whole, size = _place(tensor_of, start_of, size_of, BLOCK)
    aa, ab = tl.load(found), tl.load(found + 1)
    s = tl.where(aa == 0, 0.0, (aa - ab) / tl.where(aa == 0, 1.0, aa)).to(tl.float32)
    x = _values(a, i, offsets, whole, size, A).to(tl.float32)
    y = _values(b, i, offsets, whole, size, B).to(tl.float32)
    _put(b, i, offsets, whole, size, (x - y) - s * x, B)


@triton.jit
def _surrogate(g, h, tensor_of, start_of, size_of, alpha, found, G: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr):
    i, offsets, whole, size = _place(tensor_of, start_of, size_of, BLOCK)
    gh, hh = tl.load(found + 1), tl.load(found + 2)
    c = tl.where(hh == 0, 0.0, gh / tl.where(hh == 0, 1.0, hh)).to(tl.float32)
    x = _values(g, i, offsets, whole, size, G).to(tl.float32)
    y = _values(h, i, offsets, whole, size, H).to(tl.float32)
    _put(h, i, offsets, whole, size, y - alpha * (x - c * y), H)


@triton.jit
def _adam(
    b,
    g,
    m,
    v,
    out,
    tensor_of,
    start_of,
    size_of,
    c1_of,
    c2_of,
    rate,
    beta1,
    rest1,
    beta2,
    rest2,
    eps,
    B: tl.constexpr,
    G: tl.constexpr,
    M: tl.constexpr,
    V: tl.constexpr,
    OUT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i, offsets, whole, size = _place(tensor_of, start_of, size_of, BLOCK)
    c1, c2 = tl.load(c1_of + i).to(tl.float32), tl.load(c2_of + i).to(tl.float32)
    x = _values(b, i, offsets, whole, size, B).to(tl.float32)
    y = _values(g, i, offsets, whole, size, G).to(tl.float32)
    first = beta1 * _values(m, i, offsets, whole, size, M).to(tl.float32) + rest1 * y
    second = beta2 * _values(v, i, offsets, whole, size, V).to(tl.float32) + rest2 * y * y
    r = tl.maximum(tl.sqrt(second / c2), 1.1754943508222875e-38)  # 0/0 is 0 here: where r is 0, so is g
    d = r + eps
    factor = (rest1 - first * y / r / d * (rest2 / c2)) / d
    _put(out, i, offsets, whole, size, x * (factor * (rate / c1)), OUT)


@triton.jit
def _squares(a, tensor_of, start_of, size_of, out, A: tl.constexpr, BLOCK: tl.constexpr):
    i, offsets, whole, size = _place(tensor_of, start_of, size_of, BLOCK)
    x = _values(a, i, offsets, whole, size, A).to(tl.float32)
    tl.store(out + tl.program_id(0), tl.sum(x * x))


@triton.jit
def _products(a, b, tensor_of, start_of, size_of, out, A: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr):
    i, offsets, whole, size = _place(tensor_of, start_of, size_of, BLOCK)
    x = _values(a, i, offsets, whole, size, A).to(tl.float32)
    y = _values(b, i, offsets, whole, size, B).to(tl.float32)
    place = out + 3 * tl.program_id(0)
    tl.store(place, tl.sum(x * x))
    tl.store(place + 1, tl.sum(x * y))
    tl.store(place + 2, tl.sum(y * y))


@triton.jit
def _filter_norms(theta, tensor_of, index_of, length_of, norms, THETA: tl.constexpr, BLOCK: tl.constexpr):
    i, k = tl.load(tensor_of + tl.program_id(0)), tl.load(index_of + tl.program_id(0))
    length = tl.load(length_of + i)
    p = tl.load(theta + i).to(tl.pointer_type(THETA)) + k * length
    total = tl.zeros([BLOCK], tl.float32)
    offsets = tl.arange(0, BLOCK).to(tl.int64)
    start = length * 0
    while start < length:
        x = tl.load(p + start + offsets, mask=start + offsets < length, other=0.0).to(tl.float32)
        total += x * x
        start += BLOCK
    tl.store(norms + tl.program_id(0), tl.sqrt(tl.sum(total)))


@triton.jit
def _adaptive(
    theta,
    g,
    u,
    tensor_of,
    start_of,
    size_of,
    norms,
    length_of,
    first_of,
    xi,
    out,
    THETA: tl.constexpr,
    G: tl.constexpr,
    U: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i, offsets, whole, size = _place(tensor_of, start_of, size_of, BLOCK)
    length = tl.load(length_of + i)
    y = _values(g, i, offsets, whole, size, G).to(tl.float32)
    if length > 0:
        T = tl.load(norms + tl.load(first_of + i) + offsets // length, mask=offsets < size, other=0.0) + xi
    else:
        T = tl.abs(_values(theta, i, offsets, whole, size, THETA).to(tl.float32)) + xi
    Tg = T * y
    x = T * Tg
    tl.store(out + 2 * tl.program_id(0), tl.sum(Tg * Tg))
    tl.store(out + 2 * tl.program_id(0) + 1, tl.sum(x * x))
    _put(u, i, offsets, whole, size, x, U)
