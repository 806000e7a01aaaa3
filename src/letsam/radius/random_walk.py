"""A radius that listens to nothing: a control for learned ones."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..checks import bounded, within


@dataclass(frozen=True)
class RandomWalkRadius:
    """ν ← ν + κ·u_t before every step but the first, ρ = exp(ν), u_t normal with mean 0 and standard deviation `size`.

    The cosine rule of `LearnedRadius` with chance in place of the signal: what a learned path gains over it comes from
    the signal. u_t is a function of the seed and the step, so that a resumed run walks on as if it had never stopped.
    """

    initial: float = 0.02
    kappa: float = 0.3
    size: float = 0.1
    seed: int = 0
    bounds: tuple[float, float] = (1e-5, 10.0)

    def __post_init__(self) -> None:
        bounded(self.initial, self.bounds)
        for name in ("kappa", "size"):
            within(name, getattr(self, name), 0, math.inf)

    def set(self, t: int, norm: Tensor, groups: list[dict[str, Any]]) -> None:
        """ρ_t from ρ_{t−1}, which `sam_rho` holds."""
        if t > 0:
            u = random.Random(f"{self.seed}/{t}").gauss(0, self.size)
            groups[0]["sam_rho"] = (groups[0]["sam_rho"] * math.exp(self.kappa * u)).clamp(*self.bounds)
