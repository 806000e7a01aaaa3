"""The running epoch: what its row needs of the steps so far. It is in the checkpoint, so that a run stops anywhere."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

import letsam

from .signal import Signal


class Part:
    """Of an epoch; summed up on the device, where no step waits for it."""

    def __init__(self, opt: letsam.SharpnessAware, device: torch.device) -> None:
        self.steps = 0
        self.signal = Signal(opt)
        self._opt, self._passes, self._begin = opt, 0, time.perf_counter()
        self._loss = torch.zeros((), device=device, dtype=torch.float64)

    def add(self, loss: Tensor) -> None:
        """A step is over."""
        self.steps += 1
        self._loss += loss
        self._passes += self._opt.last.passes
        self.signal.listen()

    def means(self) -> tuple[float, float]:
        """Loss and passes of a step; waits for the device."""
        return float(self._loss) / self.steps, self._passes / self.steps

    def seconds(self) -> float:
        """Since it began, without the time between a stop and the resumed run."""
        return time.perf_counter() - self._begin

    def state_dict(self) -> dict[str, Any]:
        """All of it."""
        numbers = {"steps": self.steps, "passes": self._passes, "seconds": self.seconds()}
        return numbers | {"loss": self._loss, "signal": self.signal.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.steps, self._passes = state["steps"], state["passes"]
        self._begin = time.perf_counter() - state["seconds"]
        self._loss.copy_(state["loss"])
        self.signal.load_state_dict(state["signal"])
