"""What a run is about: a model, a loss, batches and a test. The loop is the same for all tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .data.imagenet import Files
from .data.images import Images
from .data.pairs import Pairs
from .data.sentences import Sentences
from .image_task import ImageTask
from .recipe import Training
from .sentence_task import SentenceTask
from .source import AnySet, Source
from .translation_task import TranslationTask


class Task(Protocol):
    """All that the loop asks for."""

    source: Source
    metrics: tuple[str, ...]
    """What a test measures, in the order of a row; not every test measures all of it."""
    result: tuple[str, ...]
    """The same in the order of a record's result."""
    facts: dict[str, str]
    """What a record has to say about the metrics, once they were measured."""
    capture: bool | str
    """How passes on a GPU are captured (see letsam.closure): they have to be, or, of a foreign model, if they can."""
    compile: bool | Mapping[str, Any]
    """How they are compiled, where the training asks for it."""

    def model(self) -> nn.Module:
        """The model at its start, on the device."""

    def loss_fn(self, per_sample: bool) -> Callable[[Tensor, Tensor], Tensor]:
        """The loss of (outputs, targets): a mean, or one for each row."""

    def evaluate(self, model: nn.Module, autocast: torch.dtype | None, last: bool) -> dict[str, float]:
        """The metrics of a model in eval mode; `last`: those, too, that are too dear for every epoch."""


def task_of(training: Training, train: AnySet, test: AnySet, device: torch.device) -> Task:
    """The task that fits the sets."""
    if isinstance(train, Pairs) and isinstance(test, Pairs):
        return TranslationTask(training, train, test, device)
    if isinstance(train, Sentences) and isinstance(test, Sentences):
        return SentenceTask(training, train, test, device)
    if isinstance(train, Images | Files) and isinstance(test, Images | Files):
        return ImageTask(training, train, test, device)
    raise TypeError("training and test set are of two kinds; give one kind twice")
