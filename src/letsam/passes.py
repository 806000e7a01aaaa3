"""What differs between the passes of a step: BatchNorm statistics, random state, and agreement among ranks."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from .tensors import sharded


def run_pass(closure: Callable[[], Any], params: Sequence[Tensor], device: torch.device) -> Tensor:
    """Run a closure; its gradients are in `.grad`, its loss comes back as a 0-d tensor on the device."""
    for p in params:
        p.grad = None  # so that a closure which forgets to clear does not add up the passes
    torch.clear_autocast_cache()  # under an autocast around the step, the low-precision weights are those of another θ
    with torch.enable_grad():
        loss = closure()
    if loss is None:
        raise RuntimeError("the closure returned no loss: end it with `return loss`")
    loss = torch.as_tensor(loss, device=device).detach()
    if loss.numel() != 1:
        raise RuntimeError(f"the closure returned {loss.numel()} numbers: return the mean loss")
    gradients = [p.grad for p in params]
    if all(g is None for g in gradients):
        raise RuntimeError("the closure made no gradient: call loss.backward() in it")
    if any(g.is_sparse for g in gradients if g is not None):
        raise RuntimeError("the closure made sparse gradients: set sparse=False in the embedding")
    return loss.reshape(())


class BatchStatistics:
    """Running statistics move on the clean pass only, and never on a pass that was not finite.

    They are saved and put back by copy. Setting the momentum to 0 instead would not do: 0·NaN is NaN, and it
    misses `momentum=None` and layers of one's own. A layer counts if it has a `running_mean`. The copies of all layers
    lie in one tensor, so that a step costs a few launches, not a few for each layer.
    """

    def __init__(self, model: nn.Module | None) -> None:
        self.model = model
        modules = model.modules() if model is not None else ()
        self._layers = [m for m in modules if isinstance(getattr(m, "running_mean", None), Tensor)]
        self._buffers: list[Tensor] = []
        self._copies: list[_Copies] = []

    def save(self) -> None:
        """Remember the present statistics, and take them as the good ones."""
        buffers = [b for m in self._layers for b in m._buffers.values() if b is not None]
        if len(buffers) != len(self._buffers) or not all(map(operator.is_, buffers, self._buffers)):
            self._buffers = buffers
            kinds: dict[Any, list[Tensor]] = {}
            for b in buffers:
                kinds.setdefault((b.dtype, b.device), []).append(b)
            self._copies = [_Copies(some) for some in kinds.values()]
        for copies in self._copies:
            copies.save()

    def accept(self, finite: Tensor) -> None:
        """Take what the clean pass wrote as good if it was finite, decided on the device; `restore` puts it there."""
        for copies in self._copies:
            copies.accept(finite)

    def restore(self) -> None:
        """Go back to the good ones."""
        for copies in self._copies:
            copies.restore()

    def undo(self) -> None:
        """Go back to where `save` was called: the step did not happen."""
        for copies in self._copies:
            copies.undo()


class _Copies:
    """Two copies of some buffers of one type, one after the other in memory: those of the start and the good ones."""

    def __init__(self, buffers: list[Tensor]) -> None:
        self._buffers, sizes = buffers, [b.numel() for b in buffers]
        self._start, self._good = (buffers[0].new_empty(sum(sizes)) for _ in range(2))
        self._from_start, self._from_good = (
            [part.view(b.shape) for part, b in zip(x.split(sizes), buffers, strict=True)]
            for x in (self._start, self._good)
        )
        self._back = self._from_start

    def save(self) -> None:
        torch._foreach_copy_(self._from_start, self._buffers)
        self._back = self._from_start

    def accept(self, finite: Tensor) -> None:
        torch._foreach_copy_(self._from_good, self._buffers)
        torch.where(finite, self._good, self._start, out=self._good)
        self._back = self._from_good

    def restore(self) -> None:
        torch._foreach_copy_(self._buffers, self._back)

    def undo(self) -> None:
        torch._foreach_copy_(self._buffers, self._from_start)


class RandomState:
    """The random state at one point of a step, of the CPU and of the device, to be replayed."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._cpu_state = torch.get_rng_state()
        self._cuda_state = torch.cuda.get_rng_state(device) if self._cuda else None

    def replay(self) -> None:
        """Draw again what was drawn after this point."""
        torch.set_rng_state(self._cpu_state)
        if self._cuda and self._cuda_state is not None:
            torch.cuda.set_rng_state(self._cuda_state, self._cuda)


@contextmanager
def untouched_rng(device: torch.device) -> Iterator[None]:
    """What is drawn inside does not change what is drawn afterwards."""
    state = RandomState(device)
    try:
        yield
    finally:
        state.replay()


def forget_gathered(model: nn.Module | None) -> None:
    """After a pass that failed: FSDP2 keeps what it gathered, maybe at θ_t + ε, until a backward pass lets it go."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    for module in model.modules() if fsdp and model is not None else ():
        if isinstance(module, fsdp.FSDPModule):
            module.reshard()


def alone() -> bool:
    """Whether there is one process only."""
    return not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


class Ranks:
    """Makes flags and losses the same on all ranks that train together; with one process it does nothing.

    These are the ranks of the given group, of DistributedDataParallel or of the mesh of FSDP2. What a plain function
    trains cannot be seen: then they are all ranks there are.
    """

    def __init__(self, model: nn.Module | None, params: Sequence[Tensor], group: dist.ProcessGroup | None) -> None:
        self._candidates = [group] if group is not None else _groups_of(model, params)

    @property
    def _groups(self) -> list[dist.ProcessGroup | None]:
        return [] if alone() else [group for group in self._candidates if dist.get_world_size(group) > 1]

    def all(self, flag: Tensor) -> Tensor:
        """True if it is true on every rank."""
        for group in self._groups:
            number = flag.to(torch.int32)
            dist.all_reduce(number, dist.ReduceOp.MIN, group=group)
            flag = number.bool()
        return flag

    def mean(self, value: Tensor) -> Tensor:
        """The mean over the ranks."""
        for group in self._groups:
            total = value.clone()
            dist.all_reduce(total, group=group)
            value = total / dist.get_world_size(group)
        return value


def _groups_of(model: nn.Module | None, params: Sequence[Any]) -> list[Any]:
    """The process groups to reduce over, one after the other; None stands for all ranks."""
    wrapped = [m for m in (model.modules() if model is not None else ()) if isinstance(m, DistributedDataParallel)]
    meshes = [p.device_mesh for p in params if sharded(p)]
    if wrapped:
        return [wrapped[0].process_group]
    if meshes:
        return max(meshes, key=lambda mesh: mesh.size()).get_all_groups()
    return [None]
