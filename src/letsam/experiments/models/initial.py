"""Weights at the start."""

from __future__ import annotations

from torch import nn


def he_normal(model: nn.Module) -> None:
    """Convolutions by He et al. (2015) with the fan out, biases zero: what CIFAR networks usually start from."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


def small_normal(model: nn.Module) -> None:
    """Linear layers and embeddings normal with deviation 0.02, biases zero: what transformers usually start from."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
