"""Radii that follow a formula: of the step, of the learning rate, or of the gradient norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..checks import one_of, positive, whole, within


@dataclass(frozen=True)
class ScheduledRadius:
    """ρ goes from `rho` to `final` in `steps` steps and stays there; the control that a learned path has to beat."""

    rho: float
    final: float
    steps: int
    shape: str = "exponential"

    def __post_init__(self) -> None:
        one_of("shape", self.shape, ("exponential", "linear", "cosine"))
        for name in ("rho", "final"):
            (positive if self.shape == "exponential" else _not_negative)(name, getattr(self, name))
        positive("steps", self.steps)

    @property
    def initial(self) -> float:
        """ρ₀."""
        return self.rho

    def set(self, t: int, norm: Tensor, groups: list[dict[str, Any]]) -> None:
        """ρ_t of the step alone."""
        progress = min(t / self.steps, 1.0)
        if self.shape == "exponential":
            rho = self.rho * (self.final / self.rho) ** progress
        else:
            weight = progress if self.shape == "linear" else (1 - math.cos(math.pi * progress)) / 2
            rho = self.rho + weight * (self.final - self.rho)
        groups[0]["sam_rho"] = torch.full_like(groups[0]["sam_rho"], rho)


@dataclass(frozen=True)
class ProportionalRadius:
    """GSAM's schedule: ρ_t = ρ_min + (ρ_max − ρ_min)·(lr − lr_min)/(lr_max − lr_min), lr of the first group.

    It stays between ρ_min and ρ_max where lr leaves its bounds, as in a warm-up: a negative radius would go downhill.
    """

    rho_max: float
    rho_min: float
    lr_max: float
    lr_min: float = 0.0

    def __post_init__(self) -> None:
        _not_negative("rho_min", self.rho_min)
        within("rho_max", self.rho_max, self.rho_min, math.inf)
        positive("lr_max - lr_min", self.lr_max - self.lr_min)

    @property
    def initial(self) -> float:
        """ρ_max."""
        return self.rho_max

    def set(self, t: int, norm: Tensor, groups: list[dict[str, Any]]) -> None:
        """ρ_t of the learning rate."""
        rate = torch.ones_like(groups[0]["sam_rho"]) * groups[0]["lr"]
        share = ((rate - self.lr_min) / (self.lr_max - self.lr_min)).clamp(0, 1)
        groups[0]["sam_rho"] = self.rho_min + (self.rho_max - self.rho_min) * share


@dataclass(frozen=True)
class LossEquatedRadius:
    """LE-SAM: the linearised loss increase is fixed, not the radius: ρ_t = min(σ_t/‖g‖, max).

    σ_t is σ for the first `anneal` part of `total_steps`, then falls to 0 on a half cosine.
    """

    total_steps: int
    sigma: float = 0.35
    max: float = 0.3
    anneal: float = 0.8

    def __post_init__(self) -> None:
        whole("total_steps", self.total_steps, 1)
        positive("max", self.max)
        _not_negative("sigma", self.sigma)
        within("anneal", self.anneal, 0, 1)

    @property
    def initial(self) -> float:
        """The cap."""
        return self.max

    def set(self, t: int, norm: Tensor, groups: list[dict[str, Any]]) -> None:
        """min(σ_t/(‖g‖ + 1e-12), max)."""
        start = self.anneal * self.total_steps
        rest = min(max(t - start, 0.0) / max(self.total_steps - start, 1e-12), 1.0)
        sigma = self.sigma * (1 + math.cos(math.pi * rest)) / 2
        rho = (sigma / (norm + 1e-12)).clamp_max(self.max)
        groups[0]["sam_rho"] = torch.where(norm.isfinite(), rho, groups[0]["sam_rho"])


def _not_negative(name: str, value: float) -> None:
    within(name, value, 0, math.inf)
