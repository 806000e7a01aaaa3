"""The exact one-step derivative, by a Hessian-vector product."""

from __future__ import annotations

import torch

from ..closures import Closure
from ..passes import alone
from ..tensors import Tensors, add_, copy_, like, scaled
from .step import LowerStep

KEEPS = ("epsilon", "rng")


def estimate(step: LowerStep) -> Tensors:
    """ρ·b = ∇²L(θ_t + ρv)·ρv: by double backward, or for a plain function by a central difference of two passes.

    So too with several processes: a double backward does not go through the communication of DDP and FSDP2.
    """
    assert step.rng is not None
    if isinstance(step.closure, Closure) and alone():
        step.rng.replay()
        return step.closure.hessian_product(step.space.params, step.epsilon)
    space, sides = step.space, []
    g_hat = space.take_gradients()
    h = torch.finfo(step.epsilon[0].dtype).eps ** (1 / 3)
    for side in (1 + h, 1 - h):
        copy_(space.theta, step.theta)
        add_(space.theta, step.epsilon, side)
        step.rng.replay()
        step.run(step.closure)
        sides.append(space.take_gradients())
    copy_(step.g_hat, g_hat)  # memory that the passes own was written over
    for p, x in zip(space.params, step.g_hat, strict=True):
        p.grad = like(p, x)
    return scaled(list(torch._foreach_sub(*sides)), 1 / (2 * h))
