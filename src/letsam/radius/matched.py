"""The radius that lifts the training loss towards the held-out loss.

SAM is derived from a bound: the loss on unseen data is at most the highest L_tr(θ + ε) with ‖ε‖ ≤ ρ, and a term that
does not depend on ε. A radius is large enough where L_tr(θ + ε) is as high as the loss on unseen data, and both can be
measured: the one is the loss of the perturbed pass, the other that of held-out data.

    s = (L_tr(θ_t + ε) − L_tr(θ_t))/ρ_t        how steep it is on the way to θ_t + ε
    γ = √(1 − L̄_tr/L̄_vl), within 0 and 1       how much of the held-out loss is the gap
    ρ = γ·(L̄_vl − L̄_tr)/s̄                     bars are running means

Without γ the whole gap would be bridged from the start, and a network that has most of its training before it would be
kept from it. Without the root there would be time to learn wrong labels by heart before the radius has grown. Where
the loss rises with ρ^a, finding ρ from the last s is a fixed-point iteration with the factor 1 − a on log ρ; a is
between 1, a slope, and 2, a valley. There is no gradient of the validation loss in it, and no list as long as the
parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..checks import bounded, whole, within
from ..tensors import ratio
from .learned import Gradient
from .step import Signal, count, running_mean

MEANS = ("loss", "val_loss", "slope")


@dataclass(frozen=True)
class MatchedRadius:
    """ρ = γ·(L̄_vl − L̄_tr)/s̄, after every `every`-th perturbed step; L̄ ← memory·L̄ + (1 − memory)·L, s̄ likewise.

    ρ changes by a factor e at most at once, and stays within bounds: at the lower one while there is no gap. Meant for
    losses that are never negative, and for perturbations that go uphill, as those of SAM and its kin do.
    """

    initial: float = 0.02
    every: int = 10
    memory: float = 0.9
    bounds: tuple[float, float] = (0.02, 10.0)

    reads = ("loss", "perturbed_loss")
    compares = "their losses cannot be compared, use keep=1.0"

    def __post_init__(self) -> None:
        bounded(self.initial, self.bounds)
        whole("every", self.every, 1)
        within("memory", self.memory, 0, math.nextafter(1, 0))

    def scalars(self) -> dict[str, float]:
        """The means, updates made and skipped."""
        return dict.fromkeys((*(f"mean_{name}" for name in MEANS), "nu_updates", "radius_skipped"), 0.0)

    def set(self, t: int, norm: Tensor, groups: list[dict[str, Any]]) -> None:
        """`sam_rho` holds what was found."""

    def signal(self, space: Any, response: Any, training: Gradient, validation: Gradient) -> Signal:
        """L_vl at θ_{t+1}."""
        return {"val_loss": validation()[0]}

    def update(self, signal: Signal, finite: Tensor, scalars: dict[str, Any]) -> None:
        """Move ρ to γ times the gap over the slope; if anything was not finite, nothing moves."""
        rho, first = scalars["sam_rho"], scalars["sam_nu_updates"] == 0
        now = signal | {"slope": (signal["perturbed_loss"] - signal["loss"]) / rho}
        old = {name: scalars[f"sam_mean_{name}"] for name in MEANS}
        means = {name: running_mean(old[name], now[name].to(rho), self.memory, first) for name in MEANS}
        finite = finite & torch.stack(list(means.values())).isfinite().all()
        gap = means["val_loss"] - means["loss"]
        gamma = ratio(gap, means["val_loss"]).clamp(0, 1).sqrt()
        wanted = gamma * gap / means["slope"].clamp_min(torch.finfo(rho.dtype).tiny)
        moved = torch.minimum(torch.maximum(wanted, rho / math.e), rho * math.e).clamp(*self.bounds)
        for name, value in {"rho": moved, **{f"mean_{name}": mean for name, mean in means.items()}}.items():
            scalars[f"sam_{name}"] = torch.where(finite, value, scalars[f"sam_{name}"])
        count(scalars, finite)
