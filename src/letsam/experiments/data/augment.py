"""Random crop with padding, horizontal flip, normalisation and Cutout, a batch at a time on its device.

The order is that of the usual CIFAR recipe: pad with black (0 before normalisation), crop, flip, then normalise, then
cut out (0 after normalisation, the mean colour).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import torch


class Scaled(Protocol):
    """Anything that knows mean and std of its pixels over 255, such as Images."""

    @property
    def mean(self) -> tuple[float, ...]: ...  # noqa: D102
    @property
    def std(self) -> tuple[float, ...]: ...  # noqa: D102


def augment(
    x: torch.Tensor,
    scaled: Scaled,
    generator: torch.Generator,
    *,
    padding: int = 4,
    cutout: int = 0,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = False,
) -> torch.Tensor:
    """uint8 (N, C, H, W) to a training batch; what is drawn depends on the generator and the shape alone."""
    batch = normalise(crop_flip(x, generator, padding), scaled, dtype=dtype, channels_last=channels_last)
    return cut_out_(batch, generator, cutout) if cutout else batch


def crop_flip(x: torch.Tensor, generator: torch.Generator, padding: int = 4) -> torch.Tensor:
    """Shift every image by up to `padding` pixels each way, black moving in, and mirror half of them."""
    offsets = 2 * padding + 1
    draw = torch.randint(2 * offsets**2, (len(x),), generator=generator, device=generator.device)
    draw = draw.to(x.device, non_blocking=True)  # one draw holds all three choices
    flip, top, left = draw % 2 == 1, draw // 2 // offsets, draw // 2 % offsets
    height, width = x.shape[-2:]
    column = torch.arange(width, device=x.device)
    rows = top[:, None] + torch.arange(height, device=x.device)
    columns = left[:, None] + torch.where(flip[:, None], width - 1 - column, column)
    pixels = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
    padded = torch.nn.functional.pad(x, (padding,) * 4).flatten(2)
    return padded.gather(2, pixels.flatten(1)[:, None].expand(-1, x.shape[1], -1)).view_as(x)


def cut_out_(x: torch.Tensor, generator: torch.Generator, size: int) -> torch.Tensor:
    """Blank a square of `size` pixels in half of the images, its middle anywhere; what is over the border is lost.

    DeVries and Taylor's Cutout (2017), at the share of davda54/sam and of ESAM's code.
    """
    height, width = x.shape[-2:]
    draw = torch.randint(2 * height * width, (len(x),), generator=generator, device=generator.device)
    draw = draw.to(x.device, non_blocking=True)  # one draw holds all three choices
    chosen, row, column = draw % 2 == 1, draw // 2 // width, draw // 2 % width
    rows, columns = _within(row, height, size), _within(column, width, size)
    return x.masked_fill_((chosen[:, None, None] & rows[:, :, None] & columns[:, None, :])[:, None], 0)


def _within(middle: torch.Tensor, n: int, size: int) -> torch.Tensor:
    """(N, n): which of n places lie in a span of `size` around each middle."""
    after = torch.arange(n, device=middle.device) - (middle[:, None] - size // 2)
    return (after >= 0) & (after < size)


def normalise(
    x: torch.Tensor, scaled: Scaled, *, dtype: torch.dtype = torch.float32, channels_last: bool = False
) -> torch.Tensor:
    """(x / 255 − mean) / std for uint8 (N, C, H, W), computed in float32 and rounded to `dtype` once."""
    scale, shift = _scale_and_shift(scaled.mean, scaled.std, x.device)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return torch.addcmul(shift, x.float(), scale).to(dtype).contiguous(memory_format=layout)


@lru_cache(maxsize=16)
def _scale_and_shift(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Kept, because a copy of new constants to the GPU would make every batch wait."""
    centre, spread = (torch.tensor(x, dtype=torch.float64).view(-1, 1, 1) for x in (mean, std))
    return (1 / (255 * spread)).float().to(device), (-centre / spread).float().to(device)
