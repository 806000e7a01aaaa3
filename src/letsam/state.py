"""What has to survive a checkpoint, in the two places that every checkpoint format keeps.

Scalars are entries `sam_…` of the first parameter group; tensors are entries `sam_…` of `base.state[p]`, written only
after the base has made its own state there (Adam looks whether it is empty).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .checks import within
from .space import Space
from .tensors import Tensors, carry_, like, local, scalar, sharded

PREFIX = "sam_"
Scalars = dict[str, Any]


def fresh_scalars(base: Optimizer, *axes: Any) -> None:
    """Put the starting values of the axes into the first group, and drop what an earlier wrapper left."""
    for group in base.param_groups:
        within("a group's rho", group.get("rho", 0.0), 0, float("inf"))
        for key in [key for key in group if key.startswith(PREFIX)]:
            del group[key]
    for state in base.state.values():
        for key in [key for key in state if isinstance(key, str) and key.startswith(PREFIX)]:
            del state[key]
    device = local(next(p for group in base.param_groups for p in group["params"])).device
    group = base.param_groups[0]
    group |= {"sam_step": 0, "sam_perturbed": 0, "sam_memories": 0, "sam_frozen": 0, "sam_skipped": scalar(0.0, device)}
    group["sam_rho"] = scalar(axes[0].initial, device)
    for axis in axes:
        for name, value in getattr(axis, "scalars", dict)().items():
            group[PREFIX + name] = scalar(value, device)


def load_scalars(base: Optimizer, fresh: Scalars) -> None:
    """After a load: the saved numbers, on the device and of the type they had; a plain checkpoint has none."""
    group = base.param_groups[0]
    for key, old in fresh.items():
        value = group.get(key, old)
        group[key] = torch.as_tensor(value).to(old) if isinstance(old, Tensor) else type(old)(value)


def match_layout(base: Optimizer) -> None:
    """Give loaded tensors the strides of their parameters.

    Many formats of checkpoints keep tensors contiguous, and a fused base goes through memory in its order: with a
    momentum laid out otherwise than a channels-last weight it would silently mix the weights up.
    """
    for p, state in base.state.items():
        for key, value in state.items():
            apart = isinstance(value, Tensor) and value.shape == p.shape and value.stride() != p.stride()
            if apart and not sharded(p):
                state[key] = torch.empty_like(p, dtype=value.dtype, requires_grad=False).copy_(value)


def takes_skip_flag(base: Optimizer) -> bool:
    """Whether the base can be told on the device to skip its step, as GradScaler tells fused optimizers.

    Not before there are momentum buffers: a fused SGD that skips its first step leaves them uninitialised.
    """
    if not getattr(base, "_step_supports_amp_scaling", False):
        return False
    momentum = [
        p for group in base.param_groups if group.get("momentum") for p in group["params"] if p.grad is not None
    ]
    return all(base.state.get(p, {}).get("momentum_buffer") is not None for p in momentum)


def step_if(base: Any, finite: Tensor) -> None:
    """One step of a base that takes the flag: it does nothing if the passes were not finite, and nobody waits."""
    base.grad_scale, base.found_inf = None, (~finite).float()
    try:
        base.step()
    finally:
        del base.grad_scale, base.found_inf


class Memory:
    """Tensors that an axis wants to find again at the next step.

    What is remembered during a step is installed when the base has stepped, whoever called it: a step that did not
    happen is not remembered. Every name has its place from the first step of the base on, filled or not: a distributed
    checkpoint makes one step with zero gradients, and loads what it finds a place for.
    """

    def __init__(self, base: Optimizer) -> None:
        self.base = base
        self.names: list[str] = []
        self._pending: list[tuple[Space, str, Tensors, Tensors]] = []
        this = weakref.ref(self)  # a base that is wrapped again keeps the hooks of the old wrapper

        def install(*_: Any) -> None:
            if (memory := this()) is not None:
                memory._install()

        base.register_step_post_hook(install)

    def keep(self, *axes: Any) -> None:
        """There is a place for what these axes remember, and for nothing else: what others left goes."""
        self.names = [name for axis in axes for name in getattr(axis, "memories", ())]
        for state in self.base.state.values():
            for key in [key for key in state if isinstance(key, str) and key.startswith(PREFIX)]:
                if key.removeprefix(PREFIX) not in self.names:
                    del state[key]

    def forget_pending(self) -> None:
        """The last step did not happen."""
        self._pending.clear()

    def remember(self, space: Space, name: str, values: Tensors, finite: Tensor, keep: float = 0.0) -> Tensors:
        """Find values + keep·old, in the same list, under `name` at the next step; old if the passes were not finite.

        Only while nothing is there does this wait for the device: the host must know whether there is a memory.
        """
        old = self.recall(space)(name)
        if old is not None:
            carry_(finite, values, old, keep)
        if old is not None or finite:
            self._pending.append((space, PREFIX + name, values, old if old and keep else []))
        return values

    def recall(self, space: Space) -> Callable[[str], Tensors | None]:
        """A function from a name to what was remembered, None if nothing was; zeros for new parameters."""

        def of(name: str) -> Tensors | None:
            if not self.base.param_groups[0]["sam_memories"]:
                return None
            found = [self.base.state[p].get(PREFIX + name) if p in self.base.state else None for p in space.params]
            return [torch.zeros_like(t) if m is None else local(m) for t, m in zip(space.theta, found, strict=True)]

        return of

    def _install(self) -> None:
        for space, key, values, replaced in self._pending:
            for p, value in zip(space.params, values, strict=True):
                self.base.state[p][key] = like(p, value)
            if replaced:
                space.give_back(replaced)
            self.base.param_groups[0]["sam_memories"] += 1
        self._pending.clear()
        if not self.names:
            return
        for p in [p for group in self.base.param_groups for p in group["params"] if p.grad is not None]:
            for name in self.names:
                if PREFIX + name not in self.base.state[p]:
                    self.base.state[p][PREFIX + name] = torch.zeros_like(p)
