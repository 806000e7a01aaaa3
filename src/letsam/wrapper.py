"""A real torch optimizer whose state, groups and defaults are those of another one."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from .checks import within
from .state import PREFIX, load_scalars, match_layout


class Wrapper(Optimizer):
    """Delegates to `base`, so that schedulers, checkpoints, pickling and copies work on either.

    torch's own __init__ would make a state and groups of its own and is not called; __setstate__, which every release
    keeps able to fill in what is missing, sets up the hooks.
    """

    base: Optimizer
    saved = ("base", "model", "perturbation", "policy", "combiner", "radius", "keep", "replay_rng", "process_group")

    def _start(self) -> None:
        Optimizer.__setstate__(self, {})

    def _loaded(self) -> None:
        """Forget what was seen of the state that was replaced."""
        raise NotImplementedError

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The state of the base."""
        return self.base.state

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        """The groups of the base."""
        return self.base.param_groups

    @property
    def defaults(self) -> Any:  # type: ignore[override]
        """The defaults of the base."""
        return self.base.defaults

    @property
    def _scalars(self) -> dict[str, Any]:
        return self.base.param_groups[0]

    @property
    def _device(self) -> torch.device:
        return self._scalars["sam_rho"].device

    def _trained(self) -> list[nn.Parameter]:
        return [p for group in self.base.param_groups for p in group["params"] if p.requires_grad]

    def state_dict(self) -> dict[str, Any]:
        """The base's, which carries everything: radius, counters and what the axes remember."""
        return self.base.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was saved; a state of the plain base starts the radius afresh."""
        fresh = {key: value for key, value in self._scalars.items() if key.startswith(PREFIX)}
        self.base.load_state_dict(state_dict)
        match_layout(self.base)
        load_scalars(self.base, fresh)
        self._loaded()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; it may have its own `rho`."""
        within("a group's rho", param_group.get("rho", 0.0), 0, float("inf"))
        self.base.add_param_group(param_group)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.saved}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.saved[2:6])
        return f"{type(self).__name__}({axes}, base={self.base!r})"
