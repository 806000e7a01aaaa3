"""The parameters of a step as one vector space: gradients, and what is summed over all parameters.

Sums run over the shards of all ranks too, in float32 or better, and come back as 0-d float64 tensors on the device.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from . import tensors
from .tensors import Tensors, copied, copy_, kernels, local, scalar, scalar_type, sharded


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
        self._spare: Tensors = []
        self._copies = False

    def is_of(self, params: Sequence[Tensor]) -> bool:
        """Whether it is the space of these parameters, where they lie now: then it can be used again."""
        same = len(params) == len(self.params) and all(map(operator.is_, params, self.params))
        return same and [local(x).data_ptr() for x in params] == self._places

    def room(self) -> Tensors:
        """Tensors for a copy of θ, made once; they start as one."""
        if not self._room:
            self._room = copied(self.theta)
        return self._room

    def take_gradients(self) -> Tensors:
        """Move the gradients out of `.grad`, so that the next pass cannot write over them.

        Views into memory that a pass owns (DDP's gradient_as_bucket_view, captured passes) would be written over even
        so: they are copied, into a list that was given back if there is one.
        """
        gradients = self.gradients()
        self._copies = not self._sharded and any(x._is_view() for x in gradients)
        if self._copies:
            into, self._spare = self._spare or [torch.empty_like(x) for x in gradients], []
            copy_(into, gradients)
            gradients = into
        for p in self.params:
            p.grad = None
        return gradients

    def give_back(self, a: Tensors) -> None:
        """A list that nobody needs any more; kept only where gradients are copied.

        There it saves the time to make one, and the kernels find the addresses that they know.
        """
        if self._copies:
            self._spare = a

    def drop_spare(self) -> None:
        """Free what was given back: another list is held while the next pass runs."""
        self._spare = []

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
            return kernels().squares(table).sqrt()
        types = {x.dtype for x in a}
        wide = reduce(torch.promote_types, types, torch.float32)
        norms = torch._foreach_norm(a, 2, dtype=None if types == {wide} else wide)
        return self._total([n.double() ** 2 for n in norms]).sqrt() if any(self._shard_groups) else _norm(norms)

    def finite(self, a: Tensors) -> Tensor:
        """Whether no number in it is infinite or NaN; GradScaler's check, for a quarter of the price of a norm."""
        if self._sharded or a[0].is_cuda:  # where a norm is one kernel
            return tensors.finite(self.norm(a))
        found, one = (torch.full((), x, device=self.device) for x in (0.0, 1.0))
        torch._amp_foreach_non_finite_check_and_unscale_(a, found, one)
        return found == 0

    def dot(self, a: Tensors, b: Tensors) -> Tensor:
        """⟨a, b⟩ over all parameters."""
        if (table := self._table(a, b)) is not None:
            return kernels().products(table)[1]
        return self._total([_dot(x, y) for x, y in zip(a, b, strict=True)])

    def dots(self, *pairs: tuple[Tensors, Tensors]) -> Tensors:
        """The inner products of some pairs; of two lists all of them in one pass over memory, where a kernel can."""
        lists = list({id(x): x for pair in pairs for x in pair}.values())
        if len(lists) != 2 or (table := self._table(*lists)) is None:
            return [self.dot(a, b) for a, b in pairs]
        found = kernels().products(table)
        return [found[(a is lists[1]) + (b is lists[1])] for a, b in pairs]

    def across_(self, a: Tensors, b: Tensors) -> bool:
        """b ← (a − b) − s·a with s = ⟨a − b, a⟩/⟨a, a⟩, across a, in two passes over memory; False if no kernel can."""
        if (table := self._table(a, b)) is None:
            return False
        kernels().across_(table, kernels().products(table))
        return True

    def surrogate_(self, g: Tensors, g_hat: Tensors, alpha: float) -> bool:
        """GSAM's ĝ ← ĝ − α(g − cĝ), c = ⟨g,ĝ⟩/⟨ĝ,ĝ⟩, in two passes over memory; False if no kernel can."""
        if (table := self._table(g, g_hat)) is None:
            return False
        kernels().surrogate_(table, alpha, kernels().products(table))
        return True

    def adapted(
        self, theta: Tensors, g: Tensors, filters: list[int | None], xi: float
    ) -> tuple[Tensors, Tensor, Tensor] | None:
        """ASAM's T²g, ‖Tg‖ and ‖T²g‖ in two passes over memory; None if no kernel can. filters: as in `Where`."""
        lie_apart = [axis is not None and not _outermost(x, axis) for x, axis in zip(theta, filters, strict=True)]
        if not self.has_kernels or any(lie_apart):
            return None
        u = [torch.empty_like(x) for x in g]
        if (table := self._table(theta, g, u)) is None:
            return None
        counts = tuple(0 if axis is None else x.shape[axis] for x, axis in zip(theta, filters, strict=True))
        norm, length = kernels().adaptive(table, counts, xi).sqrt()
        return u, norm, length

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

    @property
    def has_kernels(self) -> bool:
        """Whether kernels may do the arithmetic, if the lists are such that they can."""
        return self.device.type == "cuda" and not self._sharded

    def _table(self, *lists: Tensors) -> Any:
        return tensors.kernel_table(*lists) if self.has_kernels else None

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
