"""What the upper level may look at: one perturbed step of the lower level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..combiners import Combiner
from ..passes import RandomState
from ..space import Space
from ..tensors import Scaled, Tensors

Signal = dict[str, Tensor]
"""What an update of the radius is made from, by name."""


def running_mean(old: Tensor, now: Tensor, keep: float, first: Tensor) -> Tensor:
    """keep·old + (1 − keep)·now; the first value is its own mean."""
    return torch.where(first, now, torch.lerp(now, old, keep))


def count(scalars: dict[str, Any], finite: Tensor) -> None:
    """An update of the radius was made, or, since something was not finite, skipped."""
    scalars["sam_nu_updates"] = scalars["sam_nu_updates"] + finite
    scalars["sam_radius_skipped"] = scalars["sam_radius_skipped"] + ~finite


@dataclass
class LowerStep:
    """The lower level at θ_t + ε, while the weights are perturbed.

    Every estimator takes one and returns ρ·b, its estimate of ρ·∇²L(θ_t + ρv)·v = dĝ/dν. g, epsilon and rng are there
    only if the estimator names them in KEEPS: otherwise they were given back to save memory.
    """

    space: Space
    theta: Tensors
    """θ_t."""
    g: Tensors | None
    epsilon: Tensors
    g_hat: Tensors
    direction: Callable[[Tensors], Scaled]
    """ρ·v from any gradient, with T (ASAM), masks and noise as they were at θ_t."""
    combiner: Combiner
    closure: Any
    rng: RandomState | None
    """From before the perturbed pass."""
    run: Callable[[Any], Tensor]
    """One more pass of a closure."""
    g_bar_tr: Tensors | None = None
    """The training gradient at θ_{t+1}, once it is known."""
