"""How the weights answer to the gradient: J = −∂θ_{t+1}/∂d, diagonal, for the base optimizers we know.

SGD: η, with (1−dampening) once there is momentum, and (1+μ) with Nesterov. Adam and AdamW: the derivative of
η·m̂/(√v̂+ε) through both moments. Any other base: η. Read before the base steps, from its state and `.grad`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from ..space import Space
from ..tensors import Tensors, local


def with_plain_rate(b: Tensors, space: Space, base: Optimizer) -> Tensors:
    """η·b: the step as the paper prints it."""
    return _times(b, [_rate(group) for _, group in _with_groups(space, base)])


def with_jacobian(b: Tensors, space: Space, base: Optimizer) -> Tensors:
    """J·b."""
    rule = {SGD: _sgd, Adam: _adam, AdamW: _adam}.get(type(base), _unknown)
    return _times(b, [rule(p, group, base.state.get(p, {})) for p, group in _with_groups(space, base)])


def _times(b: Tensors, factors: list[Any]) -> Tensors:
    """Numbers all at once; tensors, of an Adam or a learning rate that is one, one by one."""
    if any(isinstance(factor, Tensor) for factor in factors):
        return [x * factor for x, factor in zip(b, factors, strict=True)]
    return list(torch._foreach_mul(b, factors))


def _with_groups(space: Space, base: Optimizer) -> Iterator[tuple[Tensor, dict[str, Any]]]:
    group_of = {id(p): group for group in base.param_groups for p in group["params"]}
    for p in space.params:
        yield p, group_of[id(p)]


def _rate(group: dict[str, Any]) -> Any:
    return -group["lr"] if group.get("maximize") else group["lr"]


def _unknown(p: Tensor, group: dict[str, Any], state: dict[str, Any]) -> Any:
    return _rate(group)


def _sgd(p: Tensor, group: dict[str, Any], state: dict[str, Any]) -> Any:
    # The first momentum step sets the buffer to the gradient itself, without dampening.
    first = state.get("momentum_buffer") is None
    undamped = group["momentum"] == 0 or first
    factor = 1.0 if undamped else 1 - group["dampening"]
    return _rate(group) * factor * (1 + group["momentum"] if group["nesterov"] else 1)


def _adam(p: Tensor, group: dict[str, Any], state: dict[str, Any]) -> Any:
    if group["amsgrad"]:
        return _rate(group)
    assert p.grad is not None
    beta1, beta2 = group["betas"]
    g = -local(p.grad) if group["maximize"] else local(p.grad)
    if group["weight_decay"] and not group.get("decoupled_weight_decay", False):
        g = g + group["weight_decay"] * local(p)
    m, v = (local(state[k]) if k in state else torch.zeros_like(g) for k in ("exp_avg", "exp_avg_sq"))
    t = torch.as_tensor(state.get("step", 0)).double() + 1  # torch counts in float32, too coarse for β^t
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
    m_hat, root = m / (1 - beta1**t), (v / (1 - beta2**t)).sqrt()
    denominator = root + group["eps"]
    through_m = (1 - beta1) / (1 - beta1**t) / denominator
    droot = (1 - beta2) / (1 - beta2**t) * g / torch.where(root > 0, root, torch.ones_like(root))
    return _rate(group) * (through_m - m_hat * droot / denominator**2)
