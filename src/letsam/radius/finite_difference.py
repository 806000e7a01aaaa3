"""The free estimator: SAM has both gradients already."""

from __future__ import annotations

import torch

from ..tensors import Tensors
from .step import LowerStep

KEEPS = ("g",)


def estimate(step: LowerStep) -> Tensors:
    """ρ·b = ĝ − g = ρ·∇²L·v + O(ρ²)."""
    assert step.g is not None
    return list(torch._foreach_sub(step.g_hat, step.g))
