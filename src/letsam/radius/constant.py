"""A radius that stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..checks import within


@dataclass(frozen=True)
class ConstantRadius:
    """ρ_t = ρ."""

    rho: float = 0.05

    def __post_init__(self) -> None:
        within("rho", self.rho, 0, float("inf"))

    @property
    def initial(self) -> float:
        """ρ."""
        return self.rho

    def set(self, t: int, norm: Tensor, groups: list[dict[str, Any]]) -> None:
        """`sam_rho` holds ρ from the start."""
