"""The estimator of the paper's Algorithm 1."""

from __future__ import annotations

from ..tensors import Tensors, multiplied, scale_, squared
from .step import LowerStep

KEEPS = ("g_hat",)


def estimate(step: LowerStep) -> Tensors:
    """ρ·b = ĝ² ⊙ ρ·direction(ḡ_tr): Hessian ≈ diag(ĝ²), and the direction is that of the gradient at θ_{t+1}.

    The printed step −g_aᵀg_b·g_ρ is read as −g_aᵀg_b. For ASAM, T stays at θ_t.
    """
    assert step.g_bar_tr is not None
    direction = step.direction(step.g_bar_tr)
    b = multiplied(squared(step.g_hat), direction.u)
    scale_(b, direction.s)
    return b
