"""What a learned radius is asked for during an epoch, summed up on the device: no step waits for it."""

from __future__ import annotations

from typing import Any

import torch

import letsam

from .record import Row


class Signal:
    """Of the updates since it was made; nothing at all for a radius that is not learned."""

    def __init__(self, opt: letsam.SharpnessAware) -> None:
        self._opt, self._updates = opt, 0
        self._nu = self._log_rho()
        self._less = torch.zeros_like(self._nu)
        self._squares = torch.zeros_like(self._nu)

    def listen(self) -> None:
        """A step is over."""
        if "val_loss" in self._opt.last.tensors:
            nu = self._log_rho()
            asked = self._opt.last.tensors.get("hyper_gradient", self._nu - nu)
            self._updates += 1
            self._less += asked > 0  # the objective rises with ν, or ν has become smaller
            self._squares += (nu - self._nu) ** 2
            self._nu = nu

    def row(self) -> Row:
        """`less`: the share of updates that ask for a smaller radius; `nu_step`: the root mean square of Δν."""
        if not self._updates:
            return {}
        share, square = (float(total) / self._updates for total in (self._less, self._squares))
        return {"less": share, "nu_step": square**0.5}

    def state_dict(self) -> dict[str, Any]:
        """All of it."""
        return {"updates": self._updates, "nu": self._nu, "less": self._less, "squares": self._squares}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._updates = state["updates"]
        for ours, name in ((self._nu, "nu"), (self._less, "less"), (self._squares, "squares")):
            ours.copy_(state[name])

    def _log_rho(self) -> torch.Tensor:
        return self._opt.param_groups[0]["sam_rho"].log()
