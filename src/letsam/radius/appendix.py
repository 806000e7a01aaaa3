"""The estimator of the paper's Appendix A."""

from __future__ import annotations

from ..tensors import Tensors, multiplied, squared
from .step import LowerStep

KEEPS = ("epsilon",)


def estimate(step: LowerStep) -> Tensors:
    """ρ·b = ĝ² ⊙ ρv: Hessian ≈ diag(ĝ²), with the direction v that was really taken."""
    assert step.epsilon is not None
    return multiplied(squared(step.g_hat), step.epsilon)
