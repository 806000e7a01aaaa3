"""Radii that are numbers: one that stays, and those of single groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
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


def radius_of(given: Any) -> Any:
    """What was given as a radius; of any kind of number the constant one."""
    if given is None:
        return ConstantRadius()
    if isinstance(given, Real | Tensor):
        return ConstantRadius(float(given))
    if not hasattr(given, "initial"):
        raise TypeError(f"radius is a {type(given).__name__}; give a number or a radius such as LearnedRadius()")
    return given


def own_radii(groups: list[dict[str, Any]], common: float, params: Sequence[Any]) -> list[float] | None:
    """For each parameter the `rho` of its group over the common one, None if no group has one."""
    own = {id(p): group["rho"] for group in groups if "rho" in group for p in group["params"]}
    if own and common == 0:
        raise ValueError("a group's rho is relative to the common radius, which is 0: give one above 0")
    return [own.get(id(p), common) / common for p in params] if own else None
