"""Where to: each perturbation returns the direction v; the optimizer adds ε = ρ·v (linear in ρ by contract).

A direction may be returned as s·u, a list and a factor: in SAM u is the gradient itself, and no v has to be written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from .checks import number, positive, within, yes_or_no
from .policies import uniforms
from .space import Space
from .tensors import Scaled, Tensors, add_, copied, multiplied, scaled


@dataclass
class Where:
    """What a perturbation may look at: the step t, the weights θ_t, the clean gradient and its norm, which dimension of
    each tensor counts convolution filters (None: not a convolution), and what it remembered."""

    t: int
    space: Space
    theta: Tensors
    g: Tensors
    norm: Tensor
    filters: list[int | None]
    recall: Callable[[str], Tensors | None]


class Perturbation(Protocol):
    """Turns a gradient into a direction."""

    memories: tuple[str, ...]
    """Names of what it remembers."""

    def direction(self, g: Tensors, at: Where) -> Scaled | Tensors:
        """v, without side effects: the upper level asks again with another gradient."""

    def remember(self, g: Tensors, at: Where) -> dict[str, Tensors]:
        """What it wants to find again at the next step."""


class _Forgetful:
    memories: tuple[str, ...] = ()

    def remember(self, g: Tensors, at: Where) -> dict[str, Tensors]:
        return {}


@dataclass(frozen=True)
class L2(_Forgetful):
    """SAM: v = g/‖g‖ over all parameters."""

    tiny: float = 1e-12

    def direction(self, g: Tensors, at: Where) -> Scaled:
        """g/(‖g‖ + tiny)."""
        norm = at.norm if g is at.g else at.space.norm(g)
        return Scaled(g, 1 / (norm + self.tiny), norm)


@dataclass(frozen=True)
class Adaptive(_Forgetful):
    """ASAM: v = T²g/‖Tg‖ with T = |θ| + ξ, and the norm of its filter in place of |θ| for convolutions.

    filterwise=False is element-wise everywhere, as in the official code of ASAM (which, unlike the paper, leaves
    biases at T = 1).
    """

    xi: float = 0.01
    filterwise: bool = True
    tiny: float = 1e-12

    def __post_init__(self) -> None:
        within("xi", self.xi, 0, float("inf"))
        yes_or_no("filterwise", self.filterwise)

    def direction(self, g: Tensors, at: Where) -> Scaled:
        """T²g/(‖Tg‖ + tiny)."""
        filters: list[int | None] = at.filters if self.filterwise else [None] * len(g)
        if (adapted := at.space.adapted(at.theta, g, filters, self.xi)) is not None:
            u, norm, length = adapted
            return Scaled(u, 1 / (norm + self.tiny), length)
        T = [self._scale(i, axis, at) for i, axis in enumerate(filters)]
        Tg = multiplied(T, g)
        return Scaled(multiplied(T, Tg), 1 / (at.space.norm(Tg) + self.tiny))

    def _scale(self, i: int, axis: int | None, at: Where) -> Tensor:
        theta = at.theta[i]
        if axis is None:
            return theta.abs() + self.xi
        rest = [dim for dim in range(theta.ndim) if dim != axis]
        return (at.space.norms(i, theta, rest) + self.xi).expand_as(theta)


@dataclass(frozen=True)
class Masked(_Forgetful):
    """ESAM's weight part: each tensor is perturbed with probability β, by g_S/(β·‖g_S‖)."""

    beta: float = 0.6
    seed: int = 0
    tiny: float = 1e-12

    def __post_init__(self) -> None:
        positive("beta", self.beta)
        within("beta", self.beta, 0, 1)

    def direction(self, g: Tensors, at: Where) -> Scaled:
        """g_S/(β(‖g_S‖ + tiny)) on the kept tensors, 0 elsewhere."""
        kept = [float(u < self.beta) for u in uniforms(self.seed, at.t, len(g))]
        g_S = list(torch._foreach_mul(g, kept))
        norm = at.space.norm(g_S)
        return Scaled(g_S, 1 / (self.beta * (norm + self.tiny)), norm)


@dataclass(frozen=True)
class Random(_Forgetful):
    """A random direction: Gaussian noise, each filter scaled to the norm of its weights, of unit length in all."""

    seed: int = 0

    def direction(self, g: Tensors, at: Where) -> Scaled:
        """z/‖z‖; does not look at g. A zero model has no filter norms and is not perturbed."""
        generator = torch.Generator(at.space.device).manual_seed((self.seed * 1_000_003 + at.t) % 2**63)
        z = [self._noise(i, at, generator) for i in range(len(g))]
        norm = at.space.norm(z)
        return Scaled(z, 1 / (norm + 1e-12), norm)

    def _noise(self, i: int, at: Where, generator: torch.Generator) -> Tensor:
        theta, z = at.theta[i], at.space.noise(i, generator)
        rest = list(range(1, theta.ndim)) if theta.ndim > 1 else list(range(theta.ndim))
        return z * at.space.norms(i, theta, rest) / at.space.norms(i, z, rest).clamp_min(1e-12)


@dataclass(frozen=True)
class Friendly:
    """FriendlySAM: v along d = g_t − σ·m_{t−1}, with m a moving average of the clean gradients (m_0 = d_0 = g_0)."""

    sigma: float = 1.0
    momentum: float = 0.9
    tiny: float = 1e-12

    memories = ("m",)

    def __post_init__(self) -> None:
        number("sigma", self.sigma)
        within("momentum", self.momentum, 0, 1)

    def direction(self, g: Tensors, at: Where) -> Scaled:
        """d/(‖d‖ + tiny)."""
        m = at.recall("m")
        d = g if m is None else list(torch._foreach_add(g, m, alpha=-self.sigma))
        norm = at.space.norm(d)
        return Scaled(d, 1 / (norm + self.tiny), norm)

    def remember(self, g: Tensors, at: Where) -> dict[str, Tensors]:
        """m ← λm + (1−λ)g."""
        m = at.recall("m")
        if m is None:
            return {"m": copied(g)}
        moved = scaled(m, self.momentum)
        add_(moved, g, 1 - self.momentum)
        return {"m": moved}


def filter_dimension(model: nn.Module | None) -> Callable[[Tensor], int | None]:
    """A function from a parameter to the dimension that counts its convolution filters, None if it has none.

    The model tells for sure. Without one, a tensor of four or more dimensions counts as a convolution.
    """
    if model is None:
        return lambda p: 0 if p.ndim >= 4 else None
    convolutions = [m for m in model.modules() if isinstance(m, nn.modules.conv._ConvNd)]
    dimensions = {id(m.weight): int(m.transposed) for m in convolutions}
    return lambda p: dimensions.get(id(p))
