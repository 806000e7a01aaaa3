"""Loss landscapes: the loss along random directions that are scaled to the filters of the model.

    f(x, y) = L(θ + x·d₁ + y·d₂),   d_ij ← ‖θ_ij‖ · d_ij/‖d_ij‖   for filter j of tensor i

(Li et al., Visualizing the Loss Landscape of Neural Nets, NeurIPS 2018). Without the scaling a network with larger
weights would look flatter. Biases and BatchNorm, all that has one dimension, get zero.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ..perturbations import filter_dimension
from ..tensors import Tensors, add_, copied, copy_
from .guard import untouched
from .rows import Rows, read_header

Values = list[list[float | None]]
KIND = "letsam surface 1"
log = logging.getLogger("letsam")


@dataclass(frozen=True)
class Surface:
    """axes = (x, y), values[name][i][j] at (x_j, y_i); with one axis there is one row. None: not finite, or not yet
    measured."""

    axes: list[list[float]]
    values: dict[str, Values]


@torch.no_grad()
def directions(model: nn.Module, seed: int, count: int = 2) -> list[Tensors]:
    """Random directions d₁, d₂, … with the filter norms of this model.

    Before the scaling they depend on the shapes and the seed alone, so models that were trained by different methods
    are looked at along the same ones. They are orthogonal up to chance: the cosine is about 1/√(number of weights).
    """
    generator, filter_of = torch.Generator().manual_seed(seed), filter_dimension(model)
    return [[_direction(p, filter_of(p) or 0, generator) for p in model.parameters()] for _ in range(count)]


def _direction(p: Tensor, axis: int, generator: torch.Generator) -> Tensor:
    d = torch.randn(p.shape, generator=generator).to(p)
    if p.ndim <= 1:
        return torch.zeros_like(p)
    rest = [dim for dim in range(p.ndim) if dim != axis]
    ours, theirs = (torch.linalg.vector_norm(x, dim=rest, keepdim=True) for x in (p, d))
    return d * (ours / theirs.clamp_min(torch.finfo(d.dtype).tiny))


@torch.no_grad()
def surface(
    model: nn.Module,
    losses: Mapping[str, Callable[[], float | Tensor]],
    directions: Sequence[Tensors],
    axes: Sequence[Sequence[float]],
    folder: str | Path,
    *,
    training: bool = False,
    seed: int = 0,
) -> Surface:
    """The losses on the grid of one or two axes around the weights; finished rows are kept in the folder.

    `losses` are functions of nothing, by name: `Objective.loss`, or any that looks at the model as it is. They run in
    eval mode, where BatchNorm has the statistics it was trained to have: they stay those of the centre. With
    training=True it takes those of each batch. An Objective brings its own mode. What is random in a loss is drawn from
    `seed` anew at every point.

    Interrupted or killed, a second call with the same arguments goes on after the last finished row, and ends with the
    same numbers. A folder that was begun with other weights, directions or axes is refused; the data it cannot know.
    The weights come back bit for bit.
    """
    grid = [[float(x) for x in axis] for axis in axes]
    _check(losses, directions, grid)
    theta: Tensors = list(model.parameters())
    header = {
        "kind": KIND,
        "axes": grid,
        "losses": list(losses),
        "mode": "train" if training else "eval",
        "seed": seed,
        "model": _fingerprint([*theta, *model.buffers()]),
        "directions": _fingerprint(x for d in directions for x in d),
    }
    rows, lines, backup = Rows(Path(folder), header), _lines(grid), copied(theta)

    def value(point: tuple[float, ...], loss: Callable[[], float | Tensor]) -> float | None:
        copy_(theta, backup)  # from the centre, so that no point depends on those before it
        for x, d in zip(point, directions, strict=True):
            add_(theta, d, x)
        with untouched(model, training, seed):
            found = float(loss())
        return found if math.isfinite(found) else None

    try:
        for i, points in enumerate(lines):
            if rows[i] is None:
                rows[i] = {name: [value(point, loss) for point in points] for name, loss in losses.items()}
                log.info("landscape: row %d of %d", i + 1, len(lines))
    finally:
        copy_(theta, backup)
    return load_surface(folder)


def load_surface(folder: str | Path) -> Surface:
    """What `surface` wrote, finished or not."""
    header = read_header(Path(folder))
    if header.get("kind") != KIND:
        raise ValueError(f"{folder} has no loss landscape of this version")
    grid, rows = header["axes"], Rows(Path(folder), header)
    lines = _lines(grid)
    values: dict[str, Values] = {name: [] for name in header["losses"]}
    for i, points in enumerate(lines):
        row = rows[i] or {}
        for name, found in values.items():
            found.append(row.get(name, [None] * len(points)))
    if len(grid) == 1:
        values = {name: [[x for row in found for x in row]] for name, found in values.items()}
    return Surface(grid, values)


def _lines(grid: list[list[float]]) -> list[list[tuple[float, ...]]]:
    """The points of each row: those with the same y, or a single point if there is one axis."""
    if len(grid) == 1:
        return [[(x,)] for x in grid[0]]
    return [[(x, y) for x in grid[0]] for y in grid[1]]


def _check(losses: Mapping[str, object], directions: Sequence[Tensors], grid: list[list[float]]) -> None:
    if not losses:
        raise ValueError("losses is empty; give functions by name, such as {'train': objective.loss}")
    if len(grid) != len(directions) or len(grid) not in (1, 2):
        raise ValueError(f"{len(directions)} directions and {len(grid)} axes; give one of each, or two")
    if not all(axis and all(map(math.isfinite, axis)) for axis in grid):
        raise ValueError("an axis is empty or not finite; give the places on it as numbers")


def _fingerprint(tensors: Iterable[Tensor]) -> str:
    """The sha256 of the bytes, without NumPy."""
    digest = hashlib.sha256()
    for x in tensors:
        x = x.detach().cpu().contiguous()
        digest.update((ctypes.c_char * (x.numel() * x.element_size())).from_address(x.data_ptr()) if x.numel() else b"")
    return digest.hexdigest()
