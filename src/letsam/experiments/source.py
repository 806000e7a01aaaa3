"""Where a run's batches come from: a set in the memory of the device, or files that worker processes read."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from ..data import usual_part
from .data import imagenet, images, pairs, sentences
from .data.encoded import Encoded
from .data.glue import GLUE
from .data.imagenet import Files
from .data.images import Images
from .data.noise import symmetric_noise
from .data.pairs import Pairs
from .data.parallel import CORPORA
from .data.sentences import Sentences
from .from_disk import FromDisk
from .in_memory import InMemory
from .recipe import Training

TRAINING, VALIDATION, ALL = 0, 1, 2
Batch = tuple[Tensor, ...]
"""Inputs of the model, then targets."""
ImageSet = Images | Files
AnySet = ImageSet | Pairs | Sentences
OneKind = TypeVar("OneKind", Images, Files, Encoded)


class Source(Protocol):
    """Batches as functions of the seed and the step, so that a resumed run has nothing of them to restore."""

    steps: int
    """Training batches of an epoch: those of the whole set, also where a part of it is held out. Fewer steps would be a
    shorter training, and what holding out costs would not be told from it."""

    def batch(self, number: int, stream: int) -> Batch:
        """Batch `number` since the start of the run, augmented; each stream has an order and epochs of its own."""

    def test(self) -> Generator[Batch]:
        """The test set, not augmented; close it when done."""

    def close(self) -> None:
        """Free what reading needs; a later batch opens it again."""


def load(name: str, folder: Path | None, device: str) -> tuple[AnySet, AnySet]:
    """(training set, test set) that `letsam data` has stored; of ImageNet the index alone."""
    if name in CORPORA:
        return pairs.load(name, folder, device)
    if name in GLUE:
        return sentences.load(name, folder)
    if name == "imagenet":
        index = imagenet.load(folder)
        return Files(index, "train"), Files(index, "test")
    train, test = images.load(name, folder, device, "train"), images.load(name, folder, device, "test")
    return (in_colour(train), in_colour(test)) if name == "fashion-mnist" else (train, test)


def in_colour(grey: Images) -> Images:
    """The one channel three times, as a view: ResNets take colours, and the small network takes 8×8 digits alone."""
    return replace(grey, images=grey.images.expand(-1, 3, -1, -1), mean=grey.mean * 3, std=grey.std * 3)


def source_of(training: Training, train: ImageSet, test: ImageSet, device: torch.device) -> Source:
    """The source that fits the sets."""
    if isinstance(train, Files) and isinstance(test, Files):
        return FromDisk(training, parts(training, train), test, device)
    if isinstance(train, Images) and isinstance(test, Images):
        return InMemory(training, parts(training, train), test, device)
    raise TypeError("training and test images are of two kinds; give Images twice, or Files twice")


def parts(training: Training, train: OneKind) -> tuple[OneKind, OneKind, OneKind]:
    """(training samples, validation samples, both): the same ones, as in the paper, or a part that is held out.

    It is given the training set alone, so that no test sample can get into any.
    """
    samples = train.subset(chosen(training, len(train.labels)))
    if training.noise:
        samples = samples.with_labels(symmetric_noise(samples.labels, samples.classes, training.noise, training.seed))
    if training.validation == "training":
        return samples, samples, samples
    held = usual_part(len(samples))
    mixed = torch.randperm(len(samples), generator=torch.Generator().manual_seed(training.seed + 1))
    kept, out = (samples.subset(part.sort().values) for part in (mixed[held:], mixed[:held]))
    return kept, out, samples


def pair_parts(training: Training, train: Pairs) -> tuple[Pairs, Pairs]:
    """(training pairs, validation pairs): the same ones, as in the paper, or the set's own validation part."""
    pairs = train.subset(chosen(training, len(train)))
    if training.validation == "training":
        return pairs, pairs
    if train.held_out is None:
        raise ValueError("these pairs have no validation part; use validation = 'training'")
    return pairs, train.held_out


def chosen(training: Training, n: int) -> Tensor:
    """The first samples of a permutation, or all."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(training.seed))
    return order[: training.images].sort().values if training.images else torch.arange(n)
