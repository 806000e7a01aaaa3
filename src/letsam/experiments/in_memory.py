"""Batches of images that lie on the device as uint8: chosen, cropped and mirrored there, and the host never waits."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from .data.augment import augment, normalise
from .data.images import Images
from .data.sampler import batches, perm
from .recipe import Training

TEST_BATCH = 1000


class InMemory:
    """The source of CIFAR and other small sets."""

    def __init__(self, training: Training, parts: tuple[Images, ...], test: Images, device: torch.device) -> None:
        self.steps = batches(min(training.batch, len(parts[-1])), len(parts[-1]))
        self._training, self._parts, self._test, self._device = training, parts, test, device
        self._on_gpu = device.type == "cuda"
        self._orders: dict[int, tuple[int, Tensor]] = {}

    def batch(self, number: int, stream: int) -> tuple[Tensor, Tensor]:
        """Batch `number` of a stream, augmented."""
        images = self._parts[stream]
        seed, size = 2 * self._training.seed + stream, min(self._training.batch, len(images))
        epoch, i = divmod(number, batches(size, len(images)))
        if self._orders.get(stream, (None,))[0] != epoch:
            # The whole order of an epoch at once: to fetch a batch's would make the host wait at every step.
            self._orders[stream] = epoch, perm(seed, epoch, len(images), self._device)
        chosen = self._orders[stream][1][i * size : (i + 1) * size]
        x, y = images.images[chosen], images.labels[chosen]
        if not self._training.augment:
            return normalise(x, images, channels_last=self._on_gpu), y
        generator = torch.Generator(self._device).manual_seed((seed * 1_000_003 + number) % 2**63)
        return augment(x, images, generator, cutout=self._training.cutout, channels_last=self._on_gpu), y

    def test(self) -> Generator[tuple[Tensor, Tensor]]:
        """The test images in their order."""
        for x, y in zip(self._test.images.split(TEST_BATCH), self._test.labels.split(TEST_BATCH), strict=True):
            yield normalise(x, self._test), y

    def close(self) -> None:
        """Nothing is open."""
