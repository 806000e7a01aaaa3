"""The learning rate of a step, as a factor of the highest one."""

from __future__ import annotations

import math


def factor(schedule: str, step: int, total: int, warmup: int = 0) -> float:
    """Rises in `warmup` steps to 1, then follows the schedule to the last of `total` steps.

    cosine: (1 + cos πx)/2, linear: 1 − x, exponential: 0.01ˣ, with x the share of the steps after the warm-up;
    inverse-sqrt: √(w/(step + 1)) with w the warm-up, at least one step; constant: 1.
    """
    if step < warmup:
        return (step + 1) / warmup
    x = (step - warmup) / max(total - warmup, 1)
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * x))
    if schedule == "linear":
        return 1 - x
    if schedule == "exponential":
        return 0.01**x
    if schedule == "inverse-sqrt":
        return math.sqrt(max(warmup, 1) / (step + 1))
    return 1.0
