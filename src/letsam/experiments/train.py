"""One training run: a method, a seed, a metrics row an epoch, a checkpoint an epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import letsam

from .checkpoint import load_checkpoint, save_checkpoint
from .config import TRAINING_IMAGES, Config, Job, Spec
from .data import digits
from .models import digest
from .models.small_cnn import small_cnn
from .record import Row, read_rows, write_rows

BACK = 0.25
"""The share of the epochs, at the end, in which what was held out is trained on too, and the radius stays."""


class Batches:
    """Batch t of an endless, shuffled stream is a function of (seed, stream, t): nothing to save for a resume."""

    def __init__(self, x: Tensor, y: Tensor, size: int, seed: int, stream: int) -> None:
        self.x, self.y, self.size, self.key = x, y, min(size, len(x)), (seed, stream)
        self.per_epoch = len(x) // self.size
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    def __getitem__(self, t: int) -> tuple[Tensor, Tensor]:
        epoch, i = divmod(t, self.per_epoch)
        if epoch != self._epoch:
            order = np.random.default_rng([*self.key, epoch]).permutation(len(self.x))
            self._epoch, self._order = epoch, torch.from_numpy(order)
        chosen = self._order[i * self.size : (i + 1) * self.size]
        return self.x[chosen], self.y[chosen]


class Run:
    """Everything that changes during one run, and how it goes through an epoch."""

    def __init__(self, job: Job) -> None:
        config, spec = job.config, Spec.parse(job.method)
        self.job, self.task = job, digits.task(job.seed, config.noise)
        self.train, self.held_out = parts(self.task, config, spec, job.seed)
        self.batches = Batches(*self.train, config.batch_size, job.seed, stream=2)
        self.val_batches = Batches(*self.held_out, config.batch_size, job.seed, stream=3)
        self.all_batches = Batches(self.task.train_x, self.task.train_y, config.batch_size, job.seed, stream=4)
        torch.manual_seed(job.seed)
        self.model = small_cnn()
        self.opt = optimizer(spec, self.model, config)
        self.total = config.epochs * self.batches.per_epoch
        self.rows: list[Row] = [self._row(epoch=0, passes=0.0, seconds=0.0, skipped=0)]

    def epoch(self) -> Row:
        """Train one epoch and measure."""
        steps = self.batches.per_epoch
        first, passes, skipped = steps * (len(self.rows) - 1), 0, 0
        begin = time.perf_counter()
        self.model.train()
        batches = self.batches
        if self._given_back(len(self.rows) - 1):
            self.opt.freeze_radius()
            batches = self.all_batches
        for t in range(first, first + steps):
            self._set_lr(t)
            val_closure = self._closure(self.val_batches[t]) if self.opt.needs_validation else None
            self.opt.step(self._closure(batches[t]), val_closure)
            passes += self.opt.last.passes
            skipped += self.opt.last.skipped
        seconds = time.perf_counter() - begin
        self.rows.append(self._row(len(self.rows), passes / steps, seconds, skipped))
        return self.rows[-1]

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, in tensors and plain values."""
        return {
            "identity": self.job.identity,
            "model": dict(self.model.state_dict()),
            "optimizer": self.opt.state_dict(),
            "rng": torch.get_rng_state(),
            "rows": self.rows,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; ValueError if it belongs to another run."""
        if state["identity"] != self.job.identity:
            raise ValueError("the checkpoint belongs to other settings")
        self.model.load_state_dict(state["model"])
        self.opt.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        self.rows = list(state["rows"])

    def _given_back(self, epoch: int) -> bool:
        held_out = self.train[0] is not self.held_out[0]
        return held_out and epoch >= round((1 - BACK) * self.job.config.epochs)

    def _closure(self, batch: tuple[Tensor, Tensor]) -> letsam.closures.Closure:
        return letsam.closure(self.model, losses, batch)

    def _set_lr(self, t: int) -> None:
        assert self.job.config.lr is not None
        for group in self.opt.param_groups:
            group["lr"] = self.job.config.lr * 0.5 * (1 + math.cos(math.pi * t / self.total))

    def _row(self, epoch: int, passes: float, seconds: float, skipped: int) -> Row:
        train_loss, train_accuracy = evaluate(self.model, *self.train)
        test_loss, test_accuracy = evaluate(self.model, self.task.test_x, self.task.test_y)
        group = self.opt.param_groups[0]
        return {
            "method": self.job.method,
            "seed": self.job.seed,
            "epoch": epoch,
            "train_loss": train_loss,
            "train_accuracy": train_accuracy,
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
            "gap": test_loss - train_loss,
            "rho": None if isinstance(self.opt.policy, letsam.Never) else float(group["sam_rho"]),
            "lr": group["lr"],
            "passes": passes,
            "seconds": seconds,
            "skipped": int(skipped),
            "weights": digest(self.model),
        }


def parts(
    task: digits.Task, config: Config, spec: Spec, seed: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """(training part, validation part): auto-* holds a share out, lets-* validates on the training set itself."""
    whole = task.train_x, task.train_y
    if not spec.name.startswith("auto-"):
        return whole, whole
    kept, held_out = letsam.split(TensorDataset(*whole), round(config.held_out * TRAINING_IMAGES), seed)
    inside, outside = torch.tensor(kept.indices), torch.tensor(held_out.indices)
    return (whole[0][inside], whole[1][inside]), (whole[0][outside], whole[1][outside])


def optimizer(spec: Spec, model: nn.Module, config: Config) -> letsam.SharpnessAware:
    """The method around its base; a method that plans over the run is told how many steps it has."""
    assert config.lr is not None
    assert config.weight_decay is not None
    base: torch.optim.Optimizer
    if config.base == "sgd":
        base = torch.optim.SGD(model.parameters(), config.lr, momentum=0.9, weight_decay=config.weight_decay)
    else:
        base = torch.optim.AdamW(model.parameters(), config.lr, weight_decay=config.weight_decay)
    options = dict(spec.options)
    if letsam.describe(spec.name).takes("total_steps"):
        images = TRAINING_IMAGES
        if spec.name.startswith("auto-"):
            images -= round(config.held_out * TRAINING_IMAGES)
        options.setdefault("total_steps", config.epochs * (images // config.batch_size))
    return letsam.create(spec.name, base, model=model, **options)


def losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """The loss of every sample: ESAM chooses among them, letsam.closure takes their mean."""
    return cross_entropy(outputs, labels, reduction="none")


@torch.no_grad()
def evaluate(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Mean loss and accuracy with the running statistics."""
    model.eval()
    outputs = model(x)
    return float(cross_entropy(outputs, y)), float((outputs.argmax(1) == y).double().mean())


def finished(job: Job, folder: Path) -> list[Row] | None:
    """The metrics of a run that is done, else None."""
    rows = read_rows(folder / "metrics" / f"{job.stem}.jsonl")
    return rows if len(rows) == job.config.epochs + 1 else None


def train(job: Job, folder: Path, tell: Callable[[Row], None], say: Callable[[str], None]) -> None:
    """Train from the last checkpoint, or from the start, to the end; `tell` gets each epoch's row."""
    run = Run(job)
    checkpoint, metrics = folder / "checkpoints" / f"{job.stem}.safetensors", folder / "metrics" / f"{job.stem}.jsonl"
    if checkpoint.exists():
        try:
            run.load_state_dict(load_checkpoint(checkpoint))
        except Exception as error:  # whatever is wrong with the file, the run can start anew
            say(f"{job} starts anew: {' '.join(str(error).split())[:200]}")
            run = Run(job)
    write_rows(metrics, run.rows)
    while len(run.rows) <= job.config.epochs:
        row = run.epoch()
        save_checkpoint(checkpoint, run.state_dict())
        write_rows(metrics, run.rows)
        tell(row)
    checkpoint.unlink(missing_ok=True)
