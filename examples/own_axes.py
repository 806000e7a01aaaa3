"""A method of one's own: four axes put together by hand, two of them written here.

python examples/own_axes.py
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import letsam


@dataclass(frozen=True)
class After:
    """A policy: plain steps first, perturbed steps from step `start` on."""

    start: int
    rate = 1.0  # the expected share of perturbed steps

    def scalars(self) -> dict[str, float]:
        """Numbers to remember and to save with a checkpoint: none."""
        return {}

    def decide(self, t: int, norm: Tensor, finite: Tensor, scalars: dict[str, Any]) -> bool:
        """Whether step t is perturbed; must not differ between ranks."""
        return t >= self.start


@dataclass(frozen=True)
class Sign:
    """A perturbation: every weight by the same amount, v = sign(g)/√n, so that ‖v‖ = 1."""

    memories = ()  # names of tensors to remember: none

    def direction(self, g: list[Tensor], at: Any) -> list[Tensor]:
        """Return v; the optimizer adds ρ·v."""
        n = sum(x.numel() for x in g)
        return [x.sign() / n**0.5 for x in g]

    def remember(self, g: list[Tensor], at: Any) -> dict[str, list[Tensor]]:
        """What `at.recall` finds at the next step: nothing."""
        return {}


torch.manual_seed(0)
x, y = torch.randn(256, 10), torch.randint(0, 3, (256,))
model, loss_fn = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 3)), nn.CrossEntropyLoss()
base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
growing = letsam.ScheduledRadius(rho=0.02, final=0.2, steps=40)
mine = {"perturbation": Sign(), "policy": After(10), "combiner": letsam.SurrogateGap(alpha=0.2)}
opt = letsam.SharpnessAware(base, model=model, radius=growing, **mine)
for t in range(40):
    opt.step(letsam.closure(model, loss_fn, (x, y)))
    if t % 13 == 0:
        print(f"step {t:2}  perturbed {opt.last.perturbed!s:5}  radius {opt.last.radius:.3f}  loss {opt.last.loss:.3f}")
