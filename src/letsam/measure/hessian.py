"""The top eigenvalue and the trace of the Hessian H = ∇²L(θ), from products H·v alone."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import within
from ..tensors import Tensors, scalar_type
from .objective import Objective


class Eigenpair(NamedTuple):
    """λ, its unit eigenvector v (one tensor a parameter), ‖Hv − λv‖, and how many steps it took."""

    value: float
    vector: Tensors
    residual: float
    steps: int


class Trace(NamedTuple):
    """An estimate of tr H, and its standard error."""

    value: float
    error: float


@torch.no_grad()
def top_eigenvalue(objective: Objective, *, steps: int = 100, tolerance: float = 1e-6, seed: int = 0) -> Eigenpair:
    """The largest eigenvalue of H (the most positive one, not the largest in size), by Lanczos (1950).

        w = H q_j − α_j q_j − β_{j−1} q_{j−1},   α_j = ⟨q_j, H q_j⟩,   β_j = ‖w‖,   q_{j+1} = w/β_j

    H restricted to span(q) is then the tridiagonal (β, α, β), and its top eigenpair (λ, s) is that of H up to
    ‖Hv − λv‖ = β_j·|s_j|; it stops when that is at most tolerance·|λ|, or after so many steps. Each w is made
    orthogonal to all q before, twice, or rounding would bring converged vectors back. So it keeps one copy of the
    parameters a step. The first q is drawn from `seed` on the CPU, the same for every device and type.
    """
    within("steps", steps, 1, float("inf"))
    generator = torch.Generator().manual_seed(seed)
    q = _flat([torch.randn(p.shape, generator=generator).to(p) for p in objective.params])
    v, taken = _lanczos(objective, q, min(steps, q.numel()), tolerance)
    product = _apply(objective, v)
    value = _dot(v, product)
    return Eigenpair(value, _unflat(v, objective.params), float((product - value * v).norm()), taken)


def _lanczos(objective: Objective, q: Tensor, steps: int, tolerance: float) -> tuple[Tensor, int]:
    """The unit vector in span(q, Hq, H²q, …) where vᵀHv is largest, and how many steps it took."""
    basis, alpha, beta = [q / q.norm()], [], []
    while True:
        w = _apply(objective, basis[-1])
        alpha.append(_dot(w, basis[-1]))
        for _ in range(2):
            for q in basis:
                w -= (q @ w) * q
        beta.append(float(w.norm()))
        value, s = _top_of_tridiagonal(alpha, beta[:-1])
        # If rounding is all that is left of w, the space is invariant, and there is no next direction in it.
        nothing = 10 * torch.finfo(w.dtype).eps * max(map(abs, (*alpha, *beta)))
        converged = beta[-1] * abs(s[-1]) <= tolerance * abs(value)
        if converged or beta[-1] <= nothing or len(basis) == steps:
            break
        basis.append(w / beta[-1])
    v = torch.zeros_like(q)
    for x, q in zip(s, basis, strict=True):
        v.add_(q, alpha=x)
    return v / v.norm(), len(basis)


@torch.no_grad()
def trace(objective: Objective, *, probes: int = 100, seed: int = 0) -> Trace:
    """tr H = E[zᵀHz] with z = ±1 at random, the mean of so many (Hutchinson, 1989), and its standard error s/√k.

    The probes are drawn from `seed` on the CPU, the same for every device and type. For a diagonal Hessian one is
    exact; otherwise the variance is twice the squares off the diagonal.
    """
    within("probes", probes, 2, float("inf"))
    generator = torch.Generator().manual_seed(seed)
    values = []
    for _ in range(probes):
        z = _flat([(2 * torch.randint(2, p.shape, generator=generator) - 1).to(p) for p in objective.params])
        values.append(_dot(z, _apply(objective, z)))
    mean = sum(values) / probes
    deviation = math.sqrt(sum((x - mean) ** 2 for x in values) / (probes - 1))
    return Trace(mean, deviation / math.sqrt(probes))


def _apply(objective: Objective, v: Tensor) -> Tensor:
    """H·v as one long vector."""
    product = _flat(objective.product(_unflat(v, objective.params)))
    if not product.isfinite().all():
        raise FloatingPointError(
            "a Hessian product is not finite: the loss is not smooth or overflows at these weights"
        )
    return product


def _top_of_tridiagonal(alpha: list[float], beta: list[float]) -> tuple[float, list[float]]:
    T = torch.diag(torch.tensor(alpha, dtype=torch.float64))
    for i, b in enumerate(beta):
        T[i, i + 1] = T[i + 1, i] = b
    values, vectors = torch.linalg.eigh(T)
    return float(values[-1]), vectors[:, -1].tolist()


def _dot(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum(dtype=scalar_type(a.device)))


def _flat(tensors: Tensors) -> Tensor:
    """One long vector, float32 or better."""
    wide = torch.promote_types(tensors[0].dtype, torch.float32)
    return torch.cat([x.reshape(-1).to(wide) for x in tensors])


def _unflat(v: Tensor, params: Tensors) -> Tensors:
    parts = v.split([p.numel() for p in params])
    return [part.view(p.shape).to(p.dtype) for part, p in zip(parts, params, strict=True)]
