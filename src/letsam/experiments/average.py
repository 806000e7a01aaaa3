"""An exponential moving average of the weights: ā ← keep·ā + (1 − keep)·θ after every step, one more copy of them.

It starts at the first weights, which have the share keepᵗ of it after t steps: choose keep so that this is nothing at
the end. The running statistics are averaged with the weights, counters are copied. Training never sees the average.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Average:
    """The average of a model's weights and buffers, and the model with them in place of its own."""

    def __init__(self, model: nn.Module, keep: float) -> None:
        self._model, self._keep = model, keep
        now = model.state_dict()  # shares the memory of the model, which changes in place
        self.state = {name: value.clone() for name, value in now.items()}
        smooth = [name for name in now if now[name].is_floating_point()]
        rest = [name for name in now if not now[name].is_floating_point()]
        self._smooth, self._rest = (
            ([self.state[name] for name in names], [now[name] for name in names]) for names in (smooth, rest)
        )

    @torch.no_grad()
    def update(self) -> None:
        """After a step."""
        torch._foreach_lerp_(*self._smooth, 1 - self._keep)
        if self._rest[0]:
            torch._foreach_copy_(*self._rest)

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved `state`."""
        for name, value in self.state.items():
            value.copy_(state[name])

    def __call__(self, x: Tensor) -> Tensor:
        """The outputs of the averaged model."""
        return torch.func.functional_call(self._model, self.state, (x,))
