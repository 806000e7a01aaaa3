"""Arithmetic over lists of tensors: the only file that knows foreach, accumulation types and DTensor.

A *list* here is one local tensor per parameter. Elementwise work happens on the local shards, in place where
it can; what is summed over parameters (norms, dot products) is summed over the shards of all ranks as well, in
float32 or better, and comes back as a 0-d float64 tensor on the device: nothing here waits for the device.

On a GPU some of it goes through the Triton kernels of kernels.py, where Triton is there and the lists are such that
it can; foreach is what they are checked against.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

Tensors = list[Tensor]


class Scaled(NamedTuple):
    """s·u, not multiplied out: a list, and a 0-d factor on the device. Saves a pass over memory."""

    u: Tensors
    s: Tensor

    def tensors(self) -> Tensors:
        """The product, in new tensors."""
        return scaled(self.u, self.s)


def sharded(tensor: Any) -> bool:
    """Whether a tensor is spread over ranks (FSDP2). Importing DTensor costs a second: look if anybody did."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Any) -> Tensor:
    """The part of a tensor that this rank holds; changing it in place changes the tensor."""
    return tensor.to_local() if sharded(tensor) else tensor


def like(parameter: Any, value: Tensor) -> Tensor:
    """Give a local value the sharding of its parameter, so that a checkpoint can store it."""
    if not sharded(parameter):
        return value
    mesh, placements = parameter.device_mesh, parameter.placements
    shape, stride = parameter.shape, parameter.stride()
    return type(parameter).from_local(value, mesh, placements, run_check=False, shape=shape, stride=stride)


def scalar(value: float, device: torch.device) -> Tensor:
    """A 0-d float64 tensor (float32 where the device has no float64)."""
    return torch.full((), value, device=device, dtype=scalar_type(device))


def scalar_type(device: torch.device) -> torch.dtype:
    """The type of numbers that are summed over parameters."""
    return torch.float32 if device.type == "mps" else torch.float64


def add_(a: Tensors, b: Tensors, alpha: float = 1.0) -> None:
    """a ← a + alpha·b."""
    torch._foreach_add_(a, b, alpha=alpha)


def copy_(a: Tensors, b: Tensors) -> None:
    """a ← b, bit for bit."""
    torch._foreach_copy_(a, b)


def copied(a: Tensors) -> Tensors:
    """The same numbers in new tensors."""
    new = [torch.empty_like(x) for x in a]
    copy_(new, a)
    return new


def scaled(a: Tensors, s: Tensor | float) -> Tensors:
    """s·a in new tensors; s may be a 0-d tensor of any float type."""
    return list(torch._foreach_mul(a, _factor(a, s)))


def scale_(a: Tensors, s: Tensor | float) -> None:
    """a ← s·a."""
    torch._foreach_mul_(a, _factor(a, s))


def _factor(a: Tensors, s: Tensor | float) -> Any:
    """foreach multiplies all at once by a tensor of the same type; float32 is what it multiplies in anyway."""
    return s.float() if isinstance(s, Tensor) and a[0].dtype == torch.float32 else s


def multiplied(a: Tensors, b: Tensors) -> Tensors:
    """a ⊙ b in new tensors."""
    return list(torch._foreach_mul(a, b))


def squared(a: Tensors) -> Tensors:
    """a ⊙ a in float32 or better: squares of small float16 numbers are zero in float16."""
    low = any(x.dtype in (torch.float16, torch.bfloat16) for x in a)
    wide = [x.to(torch.promote_types(x.dtype, torch.float32)) for x in a] if low else a
    return list(torch._foreach_mul(wide, wide))


def add_scaled_(a: Tensors, b: Tensors, s: Tensor) -> None:
    """a ← a + s·b, with a factor that stays on the device."""
    if s.device.type == "cpu":  # a number at hand: nothing has to be multiplied out
        torch._foreach_add_(a, b, alpha=float(s))
    else:
        torch._foreach_add_(a, scaled(b, s))


@contextmanager
def moved(theta: Tensors, backup: Tensors, step: Scaled) -> Iterator[None]:
    """backup ← θ and θ ← θ + s·u; θ comes back bit for bit, whatever happens inside.

    A kernel does both in one pass over memory. It is launched inside `try`: interrupted just before, the weights are
    those of the last backup, one step old, and never those between two points.
    """
    table = _table(theta, backup, step.u)
    if table is None:
        copy_(backup, theta)
    try:
        if table is None:
            add_scaled_(theta, *step)
        else:
            _kernels().move_(table, step.s)
        del step  # its memory goes before what is done inside
        yield
    finally:
        copy_(theta, backup)


def finite(x: Tensor) -> Tensor:
    """Whether a 0-d number is neither infinite nor NaN; x.isfinite() would be twice as many kernels."""
    return x - x == 0


def chosen(condition: Tensor, a: Tensors, b: Tensors | None) -> Tensors:
    """a where the 0-d condition holds, else b (zeros if there is no b); NaNs in the other one do not leak."""
    return [torch.where(condition, x, torch.zeros_like(x) if b is None else b[i]) for i, x in enumerate(a)]


def ratio(a: Tensor, b: Tensor) -> Tensor:
    """a/b, and 0 where b is 0: the projection on a zero vector is zero."""
    return torch.where(b == 0, torch.zeros_like(a), a / torch.where(b == 0, torch.ones_like(b), b))


class Space:
    """The space of the parameters that have a gradient in this step."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params: list[Any] = list(params)
        self.theta = [local(p) for p in self.params]
        self.device = self.theta[0].device
        self._shard_groups = [_shard_groups(p) for p in self.params]
        self._sharded = any(map(sharded, self.params))
        self._places = [x.data_ptr() for x in self.theta]
        self._room: Tensors = []

    def is_of(self, params: Sequence[Tensor]) -> bool:
        """Whether it is the space of these parameters, where they lie now: then it can be used again."""
        same = len(params) == len(self.params) and all(map(operator.is_, params, self.params))
        return same and not self._sharded and [x.data_ptr() for x in params] == self._places

    def room(self) -> Tensors:
        """Tensors for a copy of θ, made once; they start as one."""
        if not self._room:
            self._room = copied(self.theta)
        return self._room

    def take_gradients(self) -> Tensors:
        """Move the gradients out of `.grad`, so that the next pass cannot write over them.

        Views into memory that a pass owns (DDP's gradient_as_bucket_view, captured passes) would be written over even
        so: they are copied.
        """
        gradients = self.gradients()
        if not self._sharded and any(x._is_view() for x in gradients):
            gradients = copied(gradients)
        for p in self.params:
            p.grad = None
        return gradients

    def gradients(self) -> Tensors:
        """The local gradients, by reference; a parameter that the pass did not use gets a zero gradient."""
        for p in self.params:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            elif self._sharded and sharded(p) and p.grad.placements != p.placements:
                p.grad = p.grad.redistribute(placements=p.placements)  # a sum that tensor parallelism left to do
        gradients = [p.grad for p in self.params]
        return [local(g) for g in gradients] if self._sharded else gradients

    def norm(self, a: Tensors) -> Tensor:
        """‖a‖₂ over all parameters."""
        if (table := self._table(a)) is not None:
            return _kernels().squares(table).sqrt()
        low = a[0].dtype in (torch.float16, torch.bfloat16)
        norms = torch._foreach_norm(a, 2, dtype=torch.float32 if low else None)
        return self._total([n.double() ** 2 for n in norms]).sqrt() if any(self._shard_groups) else _norm(norms)

    def finite(self, a: Tensors) -> Tensor:
        """Whether no number in it is infinite or NaN; GradScaler's check, for a quarter of the price of a norm."""
        if self._sharded or self._table(a) is not None:
            return finite(self.norm(a))
        found, one = (torch.full((), x, device=self.device) for x in (0.0, 1.0))
        torch._amp_foreach_non_finite_check_and_unscale_(a, found, one)
        return found == 0

    def dot(self, a: Tensors, b: Tensors) -> Tensor:
        """⟨a, b⟩ over all parameters."""
        if (table := self._table(a, b)) is not None:
            return _kernels().products(table)[1]
        return self._total([_dot(x, y) for x, y in zip(a, b, strict=True)])

    def dots(self, *pairs: tuple[Tensors, Tensors]) -> Tensors:
        """The inner products of some pairs; of two lists all of them in one pass over memory, where a kernel can."""
        lists = list({id(x): x for pair in pairs for x in pair}.values())
        if len(lists) != 2 or (table := self._table(*lists)) is None:
            return [self.dot(a, b) for a, b in pairs]
        found = _kernels().products(table)
        return [found[(a is lists[1]) + (b is lists[1])] for a, b in pairs]

    def adapted(
        self, theta: Tensors, g: Tensors, filters: list[int | None], xi: float
    ) -> tuple[Tensors, Tensor] | None:
        """ASAM's T²g and ‖Tg‖ in two passes over memory; None if no kernel can. filters: as in `Where`."""
        lie_apart = [axis is not None and not _outermost(x, axis) for x, axis in zip(theta, filters, strict=True)]
        if self._table(theta, g) is None or any(lie_apart):
            return None
        u = [torch.empty_like(x) for x in g]
        table = self._table(theta, g, u)
        counts = tuple(0 if axis is None else x.shape[axis] for x, axis in zip(theta, filters, strict=True))
        return u, _kernels().adaptive(table, counts, xi).sqrt()

    def norms(self, i: int, x: Tensor, dims: list[int]) -> Tensor:
        """‖x‖ over some dimensions of the i-th parameter, which are kept; over its shards too where they split one."""
        norms = torch.linalg.vector_norm(x, dim=dims, keepdim=True)
        groups = _shard_groups(self.params[i], dims)
        if not groups:
            return norms
        squares = norms.double() ** 2
        for group in groups:
            dist.all_reduce(squares, group=group)
        return squares.sqrt().to(norms)

    def noise(self, i: int, generator: torch.Generator) -> Tensor:
        """Gaussian noise for the i-th parameter: each rank draws it whole and keeps its part."""
        p = self.params[i]
        z = torch.randn(p.shape, generator=generator, device=self.device, dtype=p.dtype)
        if not sharded(p):
            return z
        distribute = sys.modules["torch.distributed.tensor"].distribute_tensor
        return distribute(z, p.device_mesh, p.placements, src_data_rank=None).to_local()

    def _table(self, *lists: Tensors) -> Any:
        return None if self._sharded else _table(*lists)

    def _total(self, parts: Tensors) -> Tensor:
        """The sum, over the shards of all ranks too; what every rank has whole is counted once."""
        by_groups: dict[tuple[dist.ProcessGroup, ...], Tensors] = {}
        for x, groups in zip(parts, self._shard_groups, strict=True):
            by_groups.setdefault(groups, []).append(x)
        total = scalar(0.0, self.device)
        for groups, some in by_groups.items():
            subtotal = _sum(some)
            for group in groups:
                dist.all_reduce(subtotal, group=group)
            total = total + subtotal
        return total


@cache
def _kernels() -> ModuleType:
    return import_module(".kernels", __package__)


@cache
def _has_triton() -> bool:
    try:
        _kernels()
    except ImportError:  # foreach does the same, more slowly
        return False
    return True


def _table(*lists: Tensors) -> Any:
    """The table that the kernels work on, None if foreach has to do it."""
    return _kernels().table(*lists) if lists[0][0].is_cuda and _has_triton() else None


def _outermost(x: Tensor, axis: int) -> bool:
    """Whether the slices along an axis lie one after the other in memory."""
    return axis == 0 and x.stride(0) * len(x) == x.numel()


def _shard_groups(p: Any, dims: Sequence[int] | None = None) -> tuple[dist.ProcessGroup, ...]:
    """The ranks that hold the other shards of a parameter, one group per dimension of the mesh; () if it is whole.

    With dims, only where one of these dimensions of the parameter is split.
    """
    if not sharded(p):
        return ()
    split = [(i, placement) for i, placement in enumerate(p.placements) if not placement.is_replicate()]
    return tuple(p.device_mesh.get_group(i) for i, placement in split if dims is None or placement.dim in dims)


def _norm(norms: Sequence[Tensor]) -> Tensor:
    stacked = torch.stack(list(norms))
    return torch.linalg.vector_norm(stacked.to(scalar_type(stacked.device)))


def _dot(x: Tensor, y: Tensor) -> Tensor:
    accumulate = torch.promote_types(x.dtype, torch.float32)
    return (x.to(accumulate) * y.to(accumulate)).sum()


def _sum(parts: Tensors) -> Tensor:
    stacked = torch.stack(parts)
    return stacked.sum(dtype=scalar_type(stacked.device))
