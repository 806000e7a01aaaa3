"""A look at a model that changes nothing but its weights, and those not for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ..passes import untouched_rng


@contextmanager
def untouched(model: nn.Module, training: bool, seed: int) -> Iterator[None]:
    """Passes in train or eval mode, drawing from this seed; modes, buffers and the random state come back afterwards.

    Gradients are not tracked inside. All buffers are put back, not BatchNorm's alone: spectral norm keeps some too.
    """
    modes = [(module, module.training) for module in model.modules()]
    device = device_of(model)
    with torch.no_grad(), untouched_rng(device):
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        try:
            model.train(training)
            draw_from(seed, device)
            # Under an autocast around us, the low-precision copies of the weights may be those of another θ.
            torch.clear_autocast_cache()
            yield
        finally:
            torch.clear_autocast_cache()
            for module, mode in modes:
                module.training = mode
            for buffer, copy in buffers:
                buffer.copy_(copy)


def draw_from(seed: int, device: torch.device) -> None:
    """What is drawn next, on the CPU and on the device, depends on the seed alone; other devices are left alone."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def device_of(model: nn.Module) -> torch.device:
    """Where the model is."""
    return next(model.parameters()).device
