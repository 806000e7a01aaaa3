"""Who is timed: the plain loop, two bare passes, other implementations of SAM, and every method of ours in each mode.

All of them start from the same weights, see the same batches in the same order, under the same autocast, and step the
same fused base optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import letsam

from ..experiments.config import Spec
from ..experiments.models.small_cnn import small_cnn
from .peers import PACKAGE, installed_peer, load_peers
from .settings import Settings
from .tasks import Batch, Task, find_task, mean_loss, sample_losses

BATCHES = 8
BASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4, "fused": True}),
    "adamw": (torch.optim.AdamW, {"lr": 3e-4, "weight_decay": 0.05, "fused": True}),
}
Step = Callable[[int], tuple[Tensor, int]]
"""Step number t of a training: returns the loss, on the device, and how many passes it took."""


class Stage:
    """What the contenders share: settings, task, data."""

    def __init__(self, settings: Settings) -> None:
        assert settings.model is not None
        assert settings.batch is not None
        assert settings.device is not None
        assert settings.base is not None
        self.settings, self.device = settings, settings.device
        self.task: Task = find_task(Spec.parse(settings.model))
        self.batches: list[Batch] = self.task.batches(BATCHES, settings.batch, self.device)
        self.autocast = torch.bfloat16 if settings.dtype == "bfloat16" else None
        self.base_class, self.base_options = BASES[settings.base]

    def model(self) -> nn.Module:
        """A new model at the common start."""
        return self.task.model(self.device)

    def batch(self, t: int) -> Batch:
        """The batch of step t."""
        return self.batches[t % BATCHES]

    def one_pass(self, model: nn.Module, t: int) -> Tensor:
        """A bare forward and backward pass."""
        inputs, targets = self.batch(t)
        context: AbstractContextManager[Any] = nullcontext()
        if self.autocast is not None:
            context = torch.autocast(torch.device(self.device).type, dtype=self.autocast)
        with context:
            loss = mean_loss(model(inputs), targets)
        loss.backward()
        return loss.detach()


@dataclass(frozen=True)
class Contender:
    """A row to be: `make` builds the model and the optimizer, and returns the step."""

    name: str
    kind: str
    mode: str
    make: Callable[[Stage], Step]

    def __str__(self) -> str:
        return f"{self.name}, {self.mode}"


def contenders(settings: Settings) -> tuple[list[Contender], list[str]]:
    """Everybody, in the order of the rows, and notes on who is missing."""
    base = BASES[str(settings.base)][0].__name__
    found = [
        Contender(f"torch {base}", "plain", "eager", partial(plain, passes=1)),
        Contender("two passes", "two passes", "eager", partial(plain, passes=2)),
    ]
    package, why_not = installed_peer()
    notes = [] if package is not None else [why_not]
    peers = {**({} if package is None else {PACKAGE: package}), **load_peers(settings.peer)}
    found += [Contender(name, "peer", "eager", partial(peer, cls=cls)) for name, cls in peers.items()]
    for mode in settings.modes or ():
        for method in settings.methods:
            found.append(Contender(method, "letsam", mode, partial(ours, method=method, mode=mode)))
    return found, notes


def plain(stage: Stage, passes: int) -> Step:
    """The loop without letsam; a second pass makes the cost of SAM without its arithmetic."""
    model = stage.model()
    base = stage.base_class(model.parameters(), **stage.base_options)

    def step(t: int) -> tuple[Tensor, int]:
        for _ in range(passes):
            base.zero_grad()
            loss = stage.one_pass(model, t)
        base.step()
        return loss, passes

    return step


def peer(stage: Stage, cls: Any) -> Step:
    """Another SAM, used as its authors say."""
    model = stage.model()
    opt = cls(model.parameters(), stage.base_class, rho=0.05, **stage.base_options)

    def step(t: int) -> tuple[Tensor, int]:
        loss = stage.one_pass(model, t)
        opt.first_step(zero_grad=True)
        stage.one_pass(model, t)
        opt.second_step(zero_grad=True)
        return loss, 2

    return step


def ours(stage: Stage, method: str, mode: str) -> Step:
    """A method of letsam; a learned radius gets another batch to validate on."""
    model = stage.model()
    opt = create(method, model, stage.settings)
    loss_fn = sample_losses if opt.keep < 1 else mean_loss
    capture, compiled = mode != "eager", stage.task.compile if mode == "compiled" else False

    def closure(t: int) -> letsam.closures.Closure:
        batch, autocast = stage.batch(t), stage.autocast
        return letsam.closure(model, loss_fn, batch, autocast=autocast, capture=capture, compile=compiled)

    def step(t: int) -> tuple[Tensor, int]:
        val_closure = closure(t + BATCHES // 2) if opt.needs_validation else None
        return opt.step(closure(t), val_closure), opt.last.passes

    return step


def create(method: str, model: nn.Module, settings: Settings) -> letsam.SharpnessAware:
    """The method around the base; one that plans over the run is told how many steps it has."""
    spec = Spec.parse(method)
    options = dict(spec.options)
    if letsam.describe(spec.name).takes("total_steps"):
        options.setdefault("total_steps", (settings.warmup or 0) + (settings.steps or 0))
    base, base_options = BASES[str(settings.base)]
    return letsam.create(spec.name, base(model.parameters(), **base_options), model=model, **options)


def check_methods(settings: Settings) -> None:
    """Build every method once on a small model, so that a wrong name or option is found before anything is timed."""
    for method in settings.methods:
        try:
            create(method, small_cnn(), settings)
        except (ValueError, TypeError) as error:
            raise ValueError(f"method {method}: {' '.join(str(error).split())}") from None
