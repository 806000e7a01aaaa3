"""Models by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from torch import nn

from .grey_mlp import GreyMLP
from .pyramidnet import pyramidnet
from .resnet import resnet18, resnet32
from .resnet_imagenet import resnet50
from .small_cnn import small_cnn
from .translator import Translator
from .vit import VisionTransformer
from .wide_resnet import wide_resnet

MODELS: dict[str, Callable[..., nn.Module]] = {
    "resnet18": resnet18,
    "resnet32": resnet32,
    "resnet50": resnet50,
    "wrn28-10": wide_resnet,
    "pyramidnet110": pyramidnet,
    "vit-s": VisionTransformer,
    "small-cnn": small_cnn,
    "mlp": GreyMLP,
}
TRANSLATORS: dict[str, dict[str, Any]] = {
    "transformer-iwslt": {"width": 512, "hidden": 1024, "heads": 4, "depth": 6, "dropout": 0.3},
    "transformer-tiny": {"width": 128, "hidden": 256, "heads": 4, "depth": 4, "dropout": 0.3},
}
"""Shapes of `Translator`; the tiny one is usual for Multi30k (Wu et al., 2021), where larger ones learn by heart."""


def create(name: str, classes: int, **options: Any) -> nn.Module:
    """The model of this name at its start; options such as width or patch go to it."""
    if name not in MODELS:
        close = difflib.get_close_matches(name.lower(), MODELS, 1)
        hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(MODELS)}"
        raise ValueError(f"no model is called {name!r}; {hint}")
    return MODELS[name](classes=classes, **options)


def create_translator(name: str, vocabulary: int) -> Translator:
    """The encoder and decoder of this name at its start."""
    return Translator(vocabulary, **TRANSLATORS[name])
