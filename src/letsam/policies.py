"""When to perturb: decided after the clean gradient, in the same way on every rank.

A policy that draws does so from its own seed and the number of the step: the draw is the same on all ranks, needs
no state in a checkpoint, and leaves the global random state alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from .checks import number, whole, within

Scalars = dict[str, Any]


class Policy(Protocol):
    """Says on which steps the perturbed pass runs."""

    @property
    def rate(self) -> float:
        """The expected share of perturbed steps."""

    def scalars(self) -> dict[str, float]:
        """The numbers it remembers from step to step."""

    def decide(self, t: int, norm: Tensor, finite: Tensor, scalars: Scalars) -> bool:
        """Whether step t, whose clean gradient has this norm, is perturbed."""


def uniforms(seed: int, step: int, n: int) -> list[float]:
    """n numbers in [0, 1) that depend on the seed and the step alone."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)
    return torch.rand(n, generator=generator, dtype=torch.float64).tolist()


class _Memoryless:
    def scalars(self) -> dict[str, float]:
        return {}


@dataclass(frozen=True)
class Always(_Memoryless):
    """Every step (SAM)."""

    rate = 1.0

    def decide(self, t: int, norm: Tensor, finite: Tensor, scalars: Scalars) -> bool:
        """Yes."""
        return True


@dataclass(frozen=True)
class Never(_Memoryless):
    """No step: the base optimizer alone (ERM)."""

    rate = 0.0

    def decide(self, t: int, norm: Tensor, finite: Tensor, scalars: Scalars) -> bool:
        """No."""
        return False


@dataclass(frozen=True)
class Bernoulli(_Memoryless):
    """Each step with probability p (RST)."""

    p: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        within("p", self.p, 0, 1)

    @property
    def rate(self) -> float:
        """p."""
        return self.p

    def decide(self, t: int, norm: Tensor, finite: Tensor, scalars: Scalars) -> bool:
        """u_t < p."""
        return uniforms(self.seed, t, 1)[0] < self.p


@dataclass(frozen=True)
class EveryK(_Memoryless):
    """Steps 0, k, 2k, … (LookSAM)."""

    k: int = 5

    def __post_init__(self) -> None:
        whole("k", self.k, 1)

    @property
    def rate(self) -> float:
        """1/k."""
        return 1 / self.k

    def decide(self, t: int, norm: Tensor, finite: Tensor, scalars: Scalars) -> bool:
        """t mod k = 0."""
        return t % self.k == 0


@dataclass(frozen=True)
class GradientNorm:
    """Where the squared gradient norm is high for its recent distribution (AE-SAM).

    μ ← δμ + (1−δ)‖g‖², σ² ← δσ² + (1−δ)(‖g‖²−μ)², and the step is perturbed if ‖g‖² ≥ μ + c_t·σ with
    c_t = (t/T)·λ₁ + (1−t/T)·λ₂: few steps early, many late. Reading the decision waits for the device once a step.
    """

    total_steps: int
    lambda1: float = -1.0
    lambda2: float = 1.0
    delta: float = 0.9

    rate = 0.5

    def __post_init__(self) -> None:
        whole("total_steps", self.total_steps, 1)
        within("delta", self.delta, 0, 1)
        for name in ("lambda1", "lambda2"):
            number(name, getattr(self, name))

    def scalars(self) -> dict[str, float]:
        """μ₀ = 0 and σ₀² = e⁻¹⁰, as in the paper of AE-SAM."""
        return {"mu": 0.0, "sigma2": math.exp(-10)}

    def decide(self, t: int, norm: Tensor, finite: Tensor, scalars: Scalars) -> bool:
        """‖g‖² ≥ μ + c_t·σ, after the statistics took ‖g‖² in."""
        n = norm**2
        mu = self.delta * scalars["sam_mu"] + (1 - self.delta) * n
        sigma2 = self.delta * scalars["sam_sigma2"] + (1 - self.delta) * (n - mu) ** 2
        scalars["sam_mu"] = torch.where(finite, mu, scalars["sam_mu"])
        scalars["sam_sigma2"] = torch.where(finite, sigma2, scalars["sam_sigma2"])
        progress = min(t / self.total_steps, 1.0)
        c = progress * self.lambda1 + (1 - progress) * self.lambda2
        return bool(n >= mu + c * sigma2.sqrt())
