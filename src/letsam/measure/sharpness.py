"""Sharpness: how much the loss rises within a small ball around the weights.

    s(L) = L(θ + ρ·v) − L(θ)        v = g/‖g‖ for the ℓ2 ball, T²g/‖Tg‖ for ASAM's, g = ∇L(θ)

the first-order solution of max_{ε in the ball} L(θ + ε) − L(θ), the one that SAM itself takes (Foret et al., 2021,
sections 2 and 4.1). m-sharpness takes the maximum for each batch of m samples and then the mean; n-sharpness is
m = n, one maximum for the whole set.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..checks import within
from ..perturbations import L2, Perturbation, Where, filter_dimension
from ..space import Space
from ..tensors import Scaled, moved, scalar
from .guard import untouched
from .objective import Objective, size


class Sharpness(NamedTuple):
    """The mean rise of the loss, the loss it rises from, and the rise of every batch."""

    value: float
    loss: float
    rises: list[float]


def m_sharpness(objective: Objective, rho: float, perturbation: Perturbation | None = None) -> Sharpness:
    """1/n · Σ_B |B|·s(L_B): the mean of the sharpness of single batches, where m is the size of the batches.

    perturbation is letsam.L2() by default; letsam.Adaptive() is ASAM's neighbourhood. A rise that is not finite makes
    the mean so.
    """
    rises, losses, sizes = [], [], []
    with untouched(objective.model, objective.training, objective.seed):  # a data loader may draw
        for batch in objective.batches:
            rise, loss = _rise(objective.only(batch), rho, perturbation or L2())
            rises.append(rise)
            losses.append(loss)
            sizes.append(size(batch))
    if not rises:
        raise ValueError("there are no batches to measure the sharpness on")
    return Sharpness(_mean(rises, sizes), _mean(losses, sizes), rises)


def n_sharpness(objective: Objective, rho: float, perturbation: Perturbation | None = None) -> Sharpness:
    """s(L): one maximum for the whole set; its gradient is added up batch by batch, so that any set will fit."""
    rise, loss = _rise(objective, rho, perturbation or L2())
    return Sharpness(rise, loss, [rise])


@torch.no_grad()
def _rise(objective: Objective, rho: float, perturbation: Perturbation) -> tuple[float, float]:
    """s(L) and L(θ); θ comes back bit for bit, whatever happens in between."""
    within("rho", rho, 0, float("inf"))
    loss, g = objective.gradient()
    space, filter_of = Space(objective.params), filter_dimension(objective.model)
    filters = [filter_of(p) for p in objective.params]
    v = perturbation.direction(g, Where(0, space, space.theta, g, space.norm(g), filters, lambda name: None))
    u, s = (v.u, v.s) if isinstance(v, Scaled) else (v, scalar(1.0, space.device))
    with moved(space.theta, space.room(), Scaled(u, rho * s)):
        return objective.loss() - loss, loss


def _mean(values: list[float], weights: list[int]) -> float:
    return sum(x * w for x, w in zip(values, weights, strict=True)) / sum(weights)
