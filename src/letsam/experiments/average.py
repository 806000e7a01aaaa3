"""An average of the weights, ā ← ā + share·(θ − ā), one more copy of them.

With a share of 1 − keep after every step it is an exponential moving average. It starts at the first weights, which
have the share keepᵗ of it after t steps: choose keep so that this is nothing at the end. With a share of 1/k after the
k-th of the last epochs it is their mean. The running statistics are averaged with the weights, counters are copied.
Training never sees the average.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The average of a model's weights and buffers, and the model with them in place of its own."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        now = model.state_dict()  # shares the memory of the model, which changes in place
        self.state = {name: value.clone() for name, value in now.items()}
        smooth = [name for name in now if now[name].is_floating_point()]
        rest = [name for name in now if not now[name].is_floating_point()]
        self._smooth, self._rest = (
            ([self.state[name] for name in names], [now[name] for name in names]) for names in (smooth, rest)
        )

    @torch.no_grad()
    def update(self, share: float) -> None:
        """Move towards the present weights."""
        torch._foreach_lerp_(*self._smooth, share)
        if self._rest[0]:
            torch._foreach_copy_(*self._rest)

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved `state`."""
        _copy(self.state, state)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the average inside, and its own weights again after it."""
        now = self._model.state_dict()
        before = {name: value.clone() for name, value in now.items()}
        try:
            _copy(now, self.state)
            yield
        finally:
            _copy(now, before)


@torch.no_grad()
def _copy(to: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    for name, value in to.items():
        value.copy_(values[name])
