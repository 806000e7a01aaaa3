"""Arithmetic over lists of tensors: the only file that knows foreach, accumulation types and DTensor.

A *list* here is one local tensor per parameter. Elementwise work happens on the local shards, in place where
it can, and nothing here waits for the device. space.py has what is summed over parameters.

On a GPU some of it goes through the Triton kernels of kernels.py, where Triton is there and the lists are such that
it can; foreach is what they are checked against.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

Tensors = list[Tensor]


class Scaled(NamedTuple):
    """s·u, not multiplied out: a list, and a 0-d factor on the device. Saves a pass over memory; ‖u‖ if it is known."""

    u: Tensors
    s: Tensor
    norm: Tensor | None = None

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
    elif (table := kernel_table(a, b)) is not None:
        kernels().add_(table, s)
    else:
        torch._foreach_add_(a, scaled(b, s))


@contextmanager
def moved(theta: Tensors, backup: Tensors, step: Scaled) -> Iterator[None]:
    """backup ← θ and θ ← θ + s·u; θ comes back bit for bit, whatever happens inside.

    A kernel does both in one pass over memory, and says so on the device. Interrupted before it was launched, the
    weights have not moved, and the backup is that of an earlier step.
    """
    table = kernel_table(theta, backup, step.u)
    backed_up: Tensor | bool = True
    if table is None:
        copy_(backup, theta)
    else:
        backed_up = torch.zeros((), dtype=torch.int32, device=theta[0].device)
    try:
        if table is None:
            add_scaled_(theta, step.u, step.s)
        else:
            kernels().move_(table, step.s, backed_up)
            backed_up = True  # from here on nobody has to ask the device
        del step  # its memory goes before what is done inside
        yield
    finally:
        if backed_up:
            copy_(theta, backup)


def finite(x: Tensor) -> Tensor:
    """Whether a 0-d number is neither infinite nor NaN; x.isfinite() would be twice as many kernels."""
    return x - x == 0


def carry_(finite: Tensor, new: Tensors, old: Tensors, keep: float = 0.0) -> None:
    """new ← new + keep·old if the 0-d condition holds, else old; NaNs do not leak."""
    if (table := kernel_table(new, old)) is not None:
        kernels().carry_(table, keep, finite)
    elif finite.device.type != "cpu":
        add_(new, old, keep)
        copy_(new, [torch.where(finite, x, y) for x, y in zip(new, old, strict=True)])
    elif not finite:  # known to the host
        copy_(new, old)
    elif keep:
        add_(new, old, keep)


def ratio(a: Tensor, b: Tensor) -> Tensor:
    """a/b, and 0 where b is 0: the projection on a zero vector is zero."""
    return torch.where(b == 0, torch.zeros_like(a), a / torch.where(b == 0, torch.ones_like(b), b))


@cache
def kernels() -> ModuleType:
    """kernels.py, imported when first needed: it needs Triton."""
    return import_module(".kernels", __package__)


@cache
def has_triton() -> bool:
    """Whether there are kernels at all."""
    try:
        kernels()
    except ImportError:  # foreach does the same, more slowly
        return False
    return True


def kernel_table(*lists: Tensors) -> Any:
    """The table that the kernels work on, None if foreach has to do it."""
    return kernels().table(*lists) if lists[0][0].is_cuda and has_triton() else None
