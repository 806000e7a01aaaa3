"""Batches of ImageNet: worker processes read, crop and mirror with Pillow; the device normalises.

Training: a random part of 8 to 100 % of the area with a ratio of 3/4 to 4/3, scaled to 224 × 224, mirrored half of
the time. Test: the shorter side scaled to 256, the middle 224 × 224. Both are those of the ResNet recipes. What is
drawn for an image depends on (seed, epoch, image), so the number of workers and a resume change nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from . import sampler
from .augment import normalise
from .imagenet import Index

if TYPE_CHECKING:
    from PIL.Image import Image

SIZE, SHORTER = 224, 256
AREA, RATIO, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10

Box = tuple[int, int, int, int]
Batch = tuple[torch.Tensor, torch.Tensor]
Wanted = tuple[str | None, list[int]]
"""The images of a batch by number, and what their random crops are drawn from; None: the middle of each."""


def batches(
    index: Index,
    split: str,
    batch: int,
    *,
    seed: int = 0,
    epoch: int = 0,
    start: int = 0,
    workers: int = 4,
    size: int = SIZE,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
) -> Iterator[Batch]:
    """The batches of an epoch from number `start` on: shuffled and augmented for "train", in order for "test"."""
    count = len(index.labels[split])
    order = sampler.perm(seed, epoch, count) if split == "train" else torch.arange(count)
    draw = f"{seed}/{epoch}" if split == "train" else None
    wanted = [(draw, part.tolist()) for part in order.split(batch)[start:]]
    crops = Crops(index, split, size)
    return loaded(crops, wanted, workers=workers, device=device, dtype=dtype, channels_last=channels_last)


def loaded(
    crops: Crops,
    wanted: Iterable[Wanted],
    *,
    workers: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
) -> Generator[Batch]:
    """The batches that are wanted, in their order, made ahead by worker processes, which end with the generator."""
    on_gpu = torch.device(device).type == "cuda"
    loader: DataLoader[Batch | str] = DataLoader(
        crops,
        sampler=wanted,
        batch_size=None,  # a worker makes a whole batch; it gets the list of its images
        num_workers=workers,
        pin_memory=on_gpu,
        generator=torch.Generator(),  # else a loader draws from the random state that dropout and resume count on
    )
    for made in loader:
        if isinstance(made, str):
            raise ValueError(made)
        images, labels = (tensor.to(device, non_blocking=on_gpu) for tensor in made)
        yield normalise(images.permute(0, 3, 1, 2), crops.index, dtype=dtype, channels_last=channels_last), labels


class Crops(Dataset[Batch | str]):
    """What is wanted to uint8 (N, H, W, 3) and labels. An image that cannot be read makes the batch a line of text: an
    exception would reach the user as the traceback of a worker."""

    def __init__(self, index: Index, split: str, size: int) -> None:
        self.index, self.split, self.size = index, split, size

    def __getitem__(self, wanted: Wanted) -> Batch | str:
        draw, numbers = wanted
        try:
            images = np.stack([self._crop(i, draw) for i in numbers])
        except ValueError as error:
            return str(error)
        return torch.from_numpy(images), self.index.labels[self.split][numbers]

    def _crop(self, i: int, draw: str | None) -> np.ndarray:
        image = self._read(i)
        if draw is None:
            return np.asarray(center_crop(image, self.size))
        return np.asarray(random_crop(image, self.size, random.Random(f"{draw}/{i}")))

    def _read(self, i: int) -> Image:
        from PIL import Image, UnidentifiedImageError

        path = self.index.root / self.index.paths[self.split][i].decode()
        try:
            with Image.open(path) as file:
                return file.convert("RGB")  # a few files are grey or CMYK
        except (OSError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise ValueError(f"{path} cannot be read ({error}): put a good copy in its place") from None


def random_crop(image: Image, size: int, draw: random.Random) -> Image:
    """The training crop."""
    from PIL import Image as Pillow

    crop = image.crop(random_box(*image.size, draw)).resize((size, size), Pillow.Resampling.BILINEAR)
    return crop.transpose(Pillow.Transpose.FLIP_LEFT_RIGHT) if draw.random() < 0.5 else crop


def random_box(width: int, height: int, draw: random.Random) -> Box:
    """A box of random area and ratio inside the image; the middle, as large as the ratio allows, if ten tries fail."""
    for _ in range(TRIES):
        area = width * height * draw.uniform(*AREA)
        ratio = math.exp(draw.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return _box(draw.randint(0, width - w), draw.randint(0, height - h), w, h)
    w, h = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    return _box((width - w) // 2, (height - h) // 2, w, h)


def center_crop(image: Image, size: int) -> Image:
    """The test crop: the shorter side scaled to 256 (for 224), then the middle."""
    from PIL import Image as Pillow

    scale = round(size * SHORTER / SIZE) / min(image.size)
    w, h = (max(size, round(side * scale)) for side in image.size)
    scaled = image.resize((w, h), Pillow.Resampling.BILINEAR)
    return scaled.crop(_box(round((w - size) / 2), round((h - size) / 2), size, size))


def _box(left: int, top: int, width: int, height: int) -> Box:
    return left, top, left + width, top + height
