"""The optimizer of a run: the method around its base."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

import letsam

from .control import control
from .training import Training

PLAIN: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "rmsprop": torch.optim.RMSprop,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adagrad": torch.optim.Adagrad,
    "adamax": torch.optim.Adamax,
    "adadelta": torch.optim.Adadelta,
}


def optimizer(training: Training, model: nn.Module, total_steps: int) -> letsam.SharpnessAware:
    """The method around its base; one that plans over the run is told its length, one that draws the seed."""
    lr, weight_decay, params = training.lr, training.weight_decay, model.parameters()
    base: torch.optim.Optimizer
    if training.base == "sgd":
        momentum, nesterov = training.momentum, training.nesterov
        base = torch.optim.SGD(params, lr, momentum, weight_decay=weight_decay, nesterov=nesterov, fused=True)
    elif training.base in PLAIN:
        base = PLAIN[training.base](params, lr=lr, weight_decay=weight_decay)
    else:
        adam = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[training.base]
        base = adam(params, lr, (0.9, training.beta2), training.eps, weight_decay, fused=True)
    if training.clip:
        base.register_step_pre_hook(partial(_clip, training.clip))
    options = dict(training.options)
    for name, value in (("total_steps", total_steps), ("seed", training.seed)):
        if letsam.describe(training.method).takes(name):
            options.setdefault(name, value)
    if "radius" in options:
        options["radius"] = control(options["radius"], total_steps, training.seed)
    return letsam.create(training.method, base, model=model, rho=training.rho, **options)


def _clip(norm: float, base: torch.optim.Optimizer, *_: Any) -> None:
    """Shorten the gradient that the base is about to step with; the derivative of a learned radius does not see it."""
    nn.utils.clip_grad_norm_([p for group in base.param_groups for p in group["params"]], norm)


def check_method(training: Training) -> None:
    """Build it once, on a model of one weight: ValueError with one line if the method does not take its options."""
    try:
        optimizer(training, nn.Linear(1, 1), total_steps=1)
    except (ValueError, TypeError) as error:
        raise ValueError(" ".join(str(error).split())) from None
