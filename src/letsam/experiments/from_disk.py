"""Batches of images that are read from the disk while the device computes: worker processes decode and crop them.

Each stream, such as training and validation, has workers of its own, which live from its first batch to the end of the
run and work ahead across epochs; the test images get new ones each time. Batch n of a stream is batch n mod b of its
epoch n div b, with b batches in an epoch of that stream: a validation set that is smaller than the training set is
shuffled and cropped anew each time it has been seen.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import torch

from .data import sampler
from .data.imagenet import Files
from .data.imagenet_batches import SIZE, Batch, Crops, Wanted, loaded
from .recipe import Training

TEST_BATCH = 250
MOST_WORKERS = 16
"""Of a stream: a worker keeps two batches in shared memory, 150 MB of 512 images."""


class FromDisk:
    """The source of ImageNet."""

    def __init__(self, training: Training, parts: tuple[Files, ...], test: Files, device: torch.device) -> None:
        self.steps = sampler.batches(min(training.batch, len(parts[-1])), len(parts[-1]))
        self._training, self._parts, self._test, self._device = training, parts, test, device
        self._open: dict[int, tuple[int, Generator[Batch]]] = {}

    def batch(self, number: int, stream: int) -> Batch:
        """Batch `number` of a stream; the next one is on its way already, any other opens the stream there."""
        if stream not in self._open or self._open[stream][0] != number:
            self._close(stream)
            self._open[stream] = number, self._loaded(self._parts[stream], self._wanted(stream, number))
        batches = self._open[stream][1]
        self._open[stream] = number + 1, batches
        return next(batches)

    def test(self) -> Generator[Batch]:
        """The middles of the test images, in their order."""
        numbers = torch.arange(len(self._test)).split(TEST_BATCH)
        return self._loaded(self._test, ((None, part.tolist()) for part in numbers))

    def close(self) -> None:
        """End the workers."""
        for stream in list(self._open):
            self._close(stream)

    def _close(self, stream: int) -> None:
        if stream in self._open:
            self._open.pop(stream)[1].close()

    def _wanted(self, stream: int, first: int) -> Iterator[Wanted]:
        """What the batches of a stream from a number on are made of, to the end of the run."""
        seed, images = 2 * self._training.seed + stream, len(self._parts[stream])
        size = min(self._training.batch, images)
        for number in range(first, self.steps * self._training.epochs):
            epoch, i = divmod(number, sampler.batches(size, images))
            draw = f"{seed}/{epoch}" if self._training.augment else None
            yield draw, sampler.batch_indices(seed, epoch, i, size, images).tolist()

    def _loaded(self, files: Files, wanted: Iterator[Wanted]) -> Generator[Batch]:
        crops, on_gpu = Crops(files.index, files.split, SIZE), self._device.type == "cuda"
        return loaded(crops, wanted, workers=workers(), device=self._device, channels_last=on_gpu)


def workers() -> int:
    """A core for each, less one for the run itself; the runs of several GPUs, a process each, share the cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST_WORKERS, cores // max(1, torch.cuda.device_count()) - 1))
