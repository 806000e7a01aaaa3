"""How the weights answer to the gradient: J = −∂θ_{t+1}/∂d, diagonal, for the base optimizers we know.

SGD: η, with (1−dampening) once there is momentum, and (1+μ) with Nesterov. Adam and AdamW: the derivative of
η·m̂/(√v̂+ε) through both moments. Any other base: η. Read before the base steps, from its state and `.grad`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from .. import tensors
from ..space import Space
from ..tensors import Tensors, local

State = dict[str, Any]
Rule = Callable[[Tensors, list[Any], dict[str, Any], list[State]], Tensors]
"""J·b for the parameters of one group, from b, the parameters, the group and their states."""


def with_plain_rate(b: Tensors, space: Space, base: Optimizer) -> Tensors:
    """η·b: the step as the paper prints it."""
    return _with(_unknown, b, space, base)


def with_jacobian(b: Tensors, space: Space, base: Optimizer) -> Tensors:
    """J·b."""
    return _with({SGD: _sgd, Adam: _adam, AdamW: _adam}.get(type(base), _unknown), b, space, base)


def _with(rule: Rule, b: Tensors, space: Space, base: Optimizer) -> Tensors:
    """What the rule makes of each tensor, group by group."""
    position = {id(p): i for i, p in enumerate(space.params)}
    out = list(b)
    for group in base.param_groups:
        params = [p for p in group["params"] if id(p) in position]
        if params:
            states = [base.state.get(p, {}) for p in params]
            mine = [b[position[id(p)]] for p in params]
            for p, x in zip(params, rule(mine, params, group, states), strict=True):
                out[position[id(p)]] = x
    return out


def _times(b: Tensors, factors: list[Any]) -> Tensors:
    """All at once, unless the factors are a learning rate that is a tensor."""
    if isinstance(factors[0], Tensor) and factors[0].ndim == 0 and b[0].ndim > 0:
        return [x * factor for x, factor in zip(b, factors, strict=True)]
    return list(torch._foreach_mul(b, factors))


def _rate(group: dict[str, Any]) -> Any:
    return -group["lr"] if group.get("maximize") else group["lr"]


def _unknown(b: Tensors, params: list[Any], group: dict[str, Any], states: list[State]) -> Tensors:
    return _times(b, [_rate(group)] * len(params))


def _sgd(b: Tensors, params: list[Any], group: dict[str, Any], states: list[State]) -> Tensors:
    full = _rate(group) * (1 + group["momentum"] if group["nesterov"] else 1)
    damped = full * (1 - group["dampening"])
    # The first momentum step sets the buffer to the gradient itself, without dampening.
    first = [group["momentum"] == 0 or s.get("momentum_buffer") is None for s in states]
    return _times(b, [full if undamped else damped for undamped in first])


def _adam(b: Tensors, params: list[Any], group: dict[str, Any], states: list[State]) -> Tensors:
    if group["amsgrad"]:
        return _unknown(b, params, group, states)
    if (found := _by_kernel(b, params, group, states)) is not None:
        return found
    return list(torch._foreach_mul(b, _adam_factors(params, group, states)))


def _by_kernel(b: Tensors, params: list[Any], group: dict[str, Any], states: list[State]) -> Tensors | None:
    """J·b of the usual Adam in one pass over memory, in place of forty; None if foreach has to do it."""
    coupled = group["weight_decay"] and not group.get("decoupled_weight_decay", False)
    if group["maximize"] or coupled or isinstance(group["lr"], Tensor) or any("exp_avg" not in s for s in states):
        return None
    lists = b, [local(p.grad) for p in params], *([local(s[k]) for s in states] for k in ("exp_avg", "exp_avg_sq"))
    if tensors.kernel_table(*lists) is None:
        return None
    out = [torch.empty_like(x) for x in b]
    c1, c2 = (_corrections(beta, states, b[0].device) for beta in group["betas"])
    numbers = torch.as_tensor([c1, c2], dtype=torch.float64) if isinstance(c1[0], float) else torch.stack([*c1, *c2])
    c = numbers.reshape(2, -1).to(b[0].device, non_blocking=True)
    tensors.kernels().adam(tensors.kernel_table(*lists, out), c[0], c[1], group["lr"], group["betas"], group["eps"])
    return out


def _adam_factors(params: list[Any], group: dict[str, Any], states: list[State]) -> Tensors:
    """η/(c₁d)·(1−β₁ − (1−β₂)·m·g/(c₂·r·d)), with r = √(v/c₂), d = r + ε; m, v and c are those of the step to come.

    In place where it can: two parameter copies beside the gradients.
    """
    beta1, beta2 = group["betas"]
    c1, c2 = (_corrections(beta, states, params[0].device) for beta in group["betas"])
    g = [local(p.grad) for p in params]
    if group["maximize"]:
        g = list(torch._foreach_neg(g))
    if group["weight_decay"] and not group.get("decoupled_weight_decay", False):
        g = list(torch._foreach_add(g, [local(p) for p in params], alpha=group["weight_decay"]))
    m, v = (_moments(name, states, g) for name in ("exp_avg", "exp_avg_sq"))
    r = torch._foreach_mul(v, beta2)
    torch._foreach_addcmul_(r, g, g, 1 - beta2)
    torch._foreach_mul_(r, [1 / c for c in c2])
    torch._foreach_sqrt_(r)
    torch._foreach_clamp_min_(r, torch.finfo(g[0].dtype).tiny)  # 0/0 is 0 here: where r is 0, so is g
    factor = torch._foreach_mul(m, beta1)
    torch._foreach_add_(factor, g, alpha=1 - beta1)
    torch._foreach_mul_(factor, g)
    torch._foreach_div_(factor, r)
    torch._foreach_add_(r, group["eps"])  # d from here on
    torch._foreach_div_(factor, r)
    torch._foreach_mul_(factor, [-(1 - beta2) / c for c in c2])
    torch._foreach_add_(factor, 1 - beta1)
    torch._foreach_div_(factor, r)
    torch._foreach_mul_(factor, [_rate(group) / c for c in c1])
    return list(factor)


def _corrections(beta: float, states: list[State], device: torch.device) -> list[Any]:
    """1 − βᵗ for each parameter: numbers, or 0-d tensors where the base counts on the device."""
    steps = [s.get("step", 0) for s in states]
    if any(isinstance(t, Tensor) and t.device.type != "cpu" for t in steps):
        # torch counts in float32, too coarse for β^t
        counts = torch.stack([torch.as_tensor(t, device=device, dtype=torch.float64) for t in steps])
        return list((1 - beta ** (counts + 1)).unbind())
    return [1 - beta ** (float(t) + 1) for t in steps]


def _moments(name: str, states: list[State], g: Tensors) -> Tensors:
    return [local(s[name]) if name in s else torch.zeros_like(x) for s, x in zip(states, g, strict=True)]
