"""Images and their classes: cross entropy, and the share of test images that are classified right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from . import models
from .recipe import Training
from .source import ImageSet, source_of


class ImageTask:
    """Any model of images, in memory or on the disk."""

    metrics: tuple[str, ...] = ("test_loss", "test_accuracy")
    result: tuple[str, ...] = ("test_accuracy", "test_loss")
    capture: bool | str = True
    compile: bool | Mapping[str, Any] = models.COMPILE_IMAGES

    def __init__(self, training: Training, train: ImageSet, test: ImageSet, device: torch.device) -> None:
        self.source = source_of(training, train, test, device)
        self.facts: dict[str, str] = {}
        self._training, self._classes, self._device = training, train.classes, device

    def model(self) -> nn.Module:
        """channels_last on a GPU, where cuDNN looks for the fastest kernels: with two shapes a run, this pays."""
        model = models.create(self._training.model, self._classes).to(self._device)
        if self._device.type == "cuda":
            torch.backends.cudnn.benchmark = True
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model

    def loss_fn(self, per_sample: bool) -> Callable[[Tensor, Tensor], Tensor]:
        """Cross entropy."""
        mean = partial(cross_entropy, label_smoothing=self._training.label_smoothing)
        return partial(mean, reduction="none") if per_sample else mean

    @torch.no_grad()
    def evaluate(self, model: nn.Module, autocast: torch.dtype | None, last: bool) -> dict[str, float]:
        """Mean loss and accuracy on the test images, with the running statistics."""
        loss, right = (torch.zeros((), device=self._device, dtype=torch.float64) for _ in range(2))
        count = 0
        with closing(self.source.test()) as batches:
            for x, y in batches:
                with torch.autocast(self._device.type, autocast, enabled=autocast is not None):
                    outputs = model(x).float()
                loss += cross_entropy(outputs, y, reduction="sum")
                right += (outputs.argmax(1) == y).sum()
                count += len(y)
        return {"test_loss": float(loss) / count, "test_accuracy": float(right) / count}
