"""How flat the minimum of a finished run is: its last weights, on the images and labels it was trained on.

Eval mode, no augmentation, the first images of the training set, and the same random directions, axes, radius and
number of images for every run: what differs is the run. Landscapes take bfloat16 on a GPU; sharpness and the Hessian
are float32, also where convolutions would be rounded to TF32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .. import measure
from . import models
from .checkpoint import Unusable, load_checkpoint
from .data.augment import normalise
from .data.images import Images
from .recipe import Training
from .record import environment
from .records import FORMAT, MEASURE, Record
from .source import AnySet, parts

SEED = 0
"""Of the directions and of the random vectors of the Hessian."""
BATCH = 1000
"""Images at a time in landscapes."""


@dataclass(frozen=True)
class Settings:
    """What decides the numbers, beside the run."""

    points: int = 21
    """Places on a side of the surface, from −1 to 1; the profile has twice as many steps."""
    images: int = 5000
    rho: float = 0.05
    m: int = 128
    """Samples in a batch of m-sharpness, and of Hessian products."""
    hessian_images: int = 1024
    steps: int = 50
    """Of Lanczos, at most."""
    tolerance: float = 1e-3
    probes: int = 20
    """Of the trace."""

    def __post_init__(self) -> None:
        if self.points < 3 or self.points % 2 == 0:
            raise ValueError(
                f"--points is {self.points}; give an odd number from 3, so that the weights are one of them"
            )
        if self.images < 1:
            raise ValueError(f"--images is {self.images}; give at least 1")

    @property
    def passes(self) -> int:
        """How many points of landscapes a run has."""
        return self.points**2 + 2 * self.points - 1


class Batches:
    """The first n images, normalised batch by batch."""

    def __init__(self, images: Images, n: int, size: int) -> None:
        self._images, self._n, self._size = images, min(n, len(images)), size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        x, y, channels_last = self._images.images, self._images.labels, self._images.images.is_cuda
        for start in range(0, self._n, self._size):
            chosen = slice(start, min(start + self._size, self._n))
            yield normalise(x[chosen], self._images, channels_last=channels_last), y[chosen]


def measured(
    record: Record,
    training: Training,
    train: AnySet,
    settings: Settings,
    place: Path,
    device: str,
    command: str,
    tell: Callable[[int], None],
) -> Record:
    """The record of all measures of a finished run; `tell` hears how many points of the landscapes are done.

    `place` has the checkpoint. Rows of the landscapes that are finished are kept there too, and a second call goes on
    after them.
    """
    begin = time.perf_counter()
    if not isinstance(train, Images):
        raise ValueError(f"{training.data} is text or read from the disk, and measures want images in memory")
    model = _trained(place / f"{training.identity}.safetensors", record, train.classes, device)
    images, *_ = parts(training, train)
    loss_fn = partial(cross_entropy, label_smoothing=training.label_smoothing)

    def objective(n: int, size: int) -> measure.Objective:
        return measure.Objective(model, loss_fn, Batches(images, n, size))

    # A run that is trained again, or measured on another kind of device, has other rows.
    rows = place / f"measure-{torch.device(device).type}-{record['weights']}"
    landscapes = _landscapes(model, objective(settings.images, BATCH), settings, rows, tell)
    with _whole_float32():
        sharpness = measure.m_sharpness(objective(settings.images, settings.m), settings.rho)
        curvature = _curvature(objective(settings.hessian_images, settings.m), settings)
    return {
        "kind": MEASURE,
        "format": FORMAT,
        "identity": training.identity,
        "training": record["training"],
        "weights": record["weights"],
        "environment": environment(device),
        "command": command,
        "settings": {**asdict(settings), "seed": SEED},
        "seconds": time.perf_counter() - begin,
        "values": {"m_sharpness": sharpness.value, "training_loss": sharpness.loss, **curvature, **landscapes},
    }


def _trained(checkpoint: Path, record: Record, classes: int, device: str) -> nn.Module:
    """The network with the weights that the record of its run is about; Unusable if the checkpoint has others."""
    model = models.create(record["training"]["model"], classes)
    try:
        model.load_state_dict(load_checkpoint(checkpoint)["model"])
    except (RuntimeError, KeyError, TypeError, AttributeError):
        raise Unusable(f"{checkpoint} has no weights of {record['training']['model']}") from None
    if models.digest(model) != record.get("weights"):
        raise Unusable(f"{checkpoint} has other weights than the record of its run")
    model = model.to(device)
    return model.to(memory_format=torch.channels_last) if device.startswith("cuda") else model  # type: ignore[call-overload]


def _curvature(objective: measure.Objective, settings: Settings) -> dict[str, float | None]:
    """Nothing where a product with the Hessian is not finite, as at the weights of a run that diverged."""
    names = ("top_eigenvalue", "top_eigenvalue_residual", "trace", "trace_error")
    try:
        top = measure.top_eigenvalue(objective, steps=settings.steps, tolerance=settings.tolerance, seed=SEED)
        trace = measure.trace(objective, probes=settings.probes, seed=SEED)
    except FloatingPointError:
        return dict.fromkeys(names)
    return dict(zip(names, (top.value, top.residual, trace.value, trace.error), strict=True))


def _landscapes(
    model: nn.Module, objective: measure.Objective, settings: Settings, work: Path, tell: Callable[[int], None]
) -> dict[str, Any]:
    """The profile along the first direction and the surface over both; as lists, row by row."""
    directions, found, done = measure.directions(model, SEED), {}, 0
    side, fine = _axis(settings.points), _axis(2 * settings.points - 1)

    def loss() -> float:
        nonlocal done
        value = objective.loss()
        done += 1
        tell(done)
        return value

    for name, axes, row in (("profile", [fine], 1), ("surface", [side, side], len(side))):
        folder = work / f"{name}-{settings.points}-points-{settings.images}-images"
        done += row * len(list(folder.glob("row-*.json")))
        with torch.autocast("cuda", torch.bfloat16, enabled=next(model.parameters()).is_cuda):
            surface = measure.surface(model, {"training loss": loss}, directions[: len(axes)], axes, folder)
        found[name] = {"axes": surface.axes, "values": surface.values["training loss"]}
    return found


def _axis(points: int) -> list[float]:
    """Evenly from −1 to 1, with an exact 0 in the middle."""
    half = points // 2
    return [i / half for i in range(-half, half + 1)]


@contextmanager
def _whole_float32() -> Iterator[None]:
    """Convolutions of a GPU keep ten bits of the weights unless told otherwise, too few for second derivatives."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
