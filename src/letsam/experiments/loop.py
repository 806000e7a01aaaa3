"""One training run: any task, any method, any base optimizer, captured passes.

Batches, augmentation and label noise are functions of the seed and the step, so that a checkpoint holds the weights,
the optimizer, the random state of dropout and the rows so far, and a resumed run is the run that never stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import letsam

from ..data import is_given_back
from ..terminal import held
from . import history
from .average import Average
from .checkpoint import Unusable, load_checkpoint, save_checkpoint
from .optimizers import optimizer
from .part import Part
from .recipe import Training
from .record import Row, environment
from .schedule import factor
from .source import ALL, TRAINING, VALIDATION, AnySet, Batch
from .task import task_of

EVALUATIONS = 50
"""A test pass costs as much as some training steps: at most so many in a run, evenly, the last epoch always."""
LATER = {"part", "history"}
"""What checkpoints of older versions do not have."""
UNFINISHED = {"optimizer", "rng", "device_rng"}
"""What those of finished runs do not have."""
PULSE = 2.0
"""Seconds between two words on where an epoch is; they cost no wait for the device, whose queue is a little behind."""
Tell = Callable[[Row], None]
Step = Callable[[int, int, int], None]
"""Hears of the epoch, the step of it, and its steps."""


class Unread(ValueError):
    """A training batch that could not be read; nothing of the run has changed."""


class Run:
    """Everything that changes during one run, and how it goes through an epoch."""

    def __init__(self, training: Training, train: AnySet, test: AnySet, device: str) -> None:
        self.training, self.device, self.sets = training, torch.device(device), (train, test)
        self.task = task_of(training, train, test, self.device)
        self.source = self.task.source
        torch.manual_seed(training.seed)
        self.model = self.task.model()
        self.average = Average(self.model) if training.ema or training.average else None
        self.steps = self.source.steps
        self.opt = optimizer(training, self.model, self.steps * training.epochs)
        self.rows: list[Row] = []
        self.history: list[history.Part] = []
        self._part: Part | None = None
        self._loss_fn = self.task.loss_fn(per_sample=self.opt.keep < 1)

    def epoch(self) -> Row:
        """Train to the end of an epoch."""
        while (row := self.advance()) is None:
            pass
        return row

    def advance(self) -> Row | None:
        """One step; after the last one of an epoch measure, and add a row."""
        if self._part is None:
            self._part = self._begun()
        part, number = self._part, len(self.rows)
        part.add(self._step(number, part.steps))
        if part.steps < self.steps:
            return None
        train_loss, passes = part.means()  # waits for the device: the epoch is over
        seconds = part.seconds()
        if self.average is not None and self._averaged(number + 1) > 0:
            self.average.update(1 / self._averaged(number + 1))
        row = self._measured(number + 1, train_loss, passes) | part.signal.row()
        self.rows.append(row | {"seconds": seconds, "seconds_with_test": part.seconds()})
        self._part = None
        return self.rows[-1]

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return len(self.rows) >= self.training.epochs

    @property
    def place(self) -> tuple[int, int, int]:
        """The epoch it is in, how many steps of it are done, and how many it has."""
        return len(self.rows) + 1, self._part.steps if self._part else 0, self.steps

    @property
    def progress(self) -> str:
        """epoch 3, or: epoch 3, 20 steps"""
        return f"epoch {len(self.rows)}" + (f", {self._part.steps} steps" if self._part else "")

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs; of a finished one the weights and the rows, a fraction of it with Adam."""
        result = {
            "identity": self.training.identity,
            "model": dict(self.model.state_dict()),
            "average": None if self.average is None else self.average.state,
            "rows": self.rows,
            "history": self.history,
        }
        if self.finished:
            return result
        return result | {
            "optimizer": self.opt.state_dict(),
            "rng": torch.get_rng_state(),
            "device_rng": torch.cuda.get_rng_state(self.device) if self._on_gpu else None,
            "part": None if self._part is None else self._part.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; Unusable, and nothing has changed, if it belongs to another run."""
        self._check(state)
        self.model.load_state_dict(state["model"])
        if self.average is not None:
            self.average.load(state["average"])
        self.rows, self.history = list(state["rows"]), list(state.get("history", []))
        if self.finished:
            return
        self.opt.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        if self._on_gpu and state["device_rng"] is not None:
            torch.cuda.set_rng_state(state["device_rng"], self.device)
        if state.get("part") is not None:
            self._part = self._begun()
            self._part.load_state_dict(state["part"])

    def _begun(self) -> Part:
        """An epoch that begins, or is gone on with."""
        self.model.train()
        if self._given_back(len(self.rows)) and self.opt.needs_validation:
            self.opt.freeze_radius()
        return Part(self.opt, self.device)

    def _check(self, state: Any) -> None:
        """What a resumed run needs is there, and of the same settings and model."""
        done = isinstance(state, dict) and len(state.get("rows", ())) >= self.training.epochs
        needed = self.state_dict().keys() - LATER - (UNFINISHED if done else set())
        lacking = sorted(needed - state.keys()) if isinstance(state, dict) else ["settings"]
        if lacking:
            raise Unusable(f"the checkpoint has no {lacking[0]}")
        if state["identity"] != self.training.identity:
            raise Unusable("the checkpoint belongs to other settings")
        ours, theirs = ({k: v.shape for k, v in model.items()} for model in (self.model.state_dict(), state["model"]))
        if ours != theirs:
            raise Unusable("the checkpoint belongs to another model")

    def _step(self, epoch: int, i: int) -> Tensor:
        t = epoch * self.steps + i
        share = factor(self.training.schedule, t, self.steps * self.training.epochs, self.training.warmup)
        for group in self.opt.param_groups:
            group["lr"] = self.training.lr * share
        stream = ALL if self._given_back(epoch) else TRAINING
        try:
            batch = self.source.batch(t, stream)
        except ValueError as error:
            raise Unread(str(error)) from None
        val_closure = self._held_out if self.opt.needs_validation else None
        loss = self.opt.step(self._closure(batch), val_closure)
        if self.average is not None and self.training.ema:
            self.average.update(1 - self.training.ema)
        return loss

    def _held_out(self) -> Tensor:
        """A pass over the next validation batch, which is made here, since not every step updates the radius."""
        assert isinstance(self.opt.radius, letsam.radius.Learning)
        update = (self.opt.param_groups[0]["sam_perturbed"] - 1) // self.opt.radius.every
        return self._closure(self.source.batch(update, VALIDATION))()

    def _given_back(self, epoch: int) -> bool:
        """Whether an epoch trains on what was held out, too."""
        return is_given_back(epoch, self.training.epochs, self.training.back)

    def _averaged(self, epoch: int) -> int:
        """How many epochs the mean over the last ones is of, after an epoch."""
        return epoch - self.training.epochs + self.training.average if self.training.average else 0

    def _closure(self, batch: Batch) -> letsam.closures.Closure:
        compiled = self.task.compile if self._on_gpu and self.training.compile else False
        capture = self._on_gpu and self.task.capture
        return letsam.closure(
            self.model, self._loss_fn, batch, autocast=self.autocast, capture=capture, compile=compiled
        )

    @property
    def _on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def autocast(self) -> torch.dtype | None:
        """The type of the passes; None: that of the weights."""
        return torch.bfloat16 if self.training.precision == "bfloat16" else None

    def _measured(self, epoch: int, train_loss: float, passes: float) -> Row:
        every = -(-self.training.epochs // EVALUATIONS)
        row: Row = {
            "epoch": epoch,
            "train_loss": train_loss,
            **dict.fromkeys(self.task.metrics),
            "rho": None if isinstance(self.opt.policy, letsam.Never) else float(self.opt.param_groups[0]["sam_rho"]),
            "lr": self.opt.param_groups[0]["lr"],
            "passes": passes,
            "skipped": int(self.opt.param_groups[0]["sam_skipped"]),
        }
        if epoch % every == 0 or epoch == self.training.epochs:
            row |= self.evaluate(epoch)
        return row

    def evaluate(self, epoch: int) -> dict[str, float]:
        """The task's metrics of the weights after an epoch; of their average, if there is one by then."""
        self.model.eval()
        average = self.average if self.training.ema or self._averaged(epoch) > 0 else None
        with nullcontext() if average is None else average.applied():
            return self.task.evaluate(self.model, self.autocast, last=epoch == self.training.epochs)

    def close(self) -> None:
        """End the processes that read images, and forget what was compiled: torch keeps eight networks, then none."""
        self.source.close()
        if self._on_gpu and self.training.compile:
            torch.compiler.reset()


def train_run(
    make: Callable[[], Run],
    folder: Path,
    tell: Tell,
    say: Callable[[str], None],
    every: float = 60.0,
    step: Step = lambda *_: None,
) -> Run:
    """Train from the last checkpoint, or from the start, to the end, with a checkpoint every so many seconds."""
    run = make()
    checkpoint = folder / f"{run.training.identity}.safetensors"
    if checkpoint.exists():
        _resume(run, checkpoint, say)
    if changed := history.gone_on(run.history, environment(str(run.device)), len(run.rows)):
        say(f"{run.training}: it began elsewhere, and the last digits may differ: {changed}")
    try:
        _to_the_end(run, checkpoint, tell, every, step)
    finally:
        run.close()
    return run


def _resume(run: Run, checkpoint: Path, say: Callable[[str], None]) -> None:
    """Go on from a checkpoint. One that nobody can use is kept beside it; of any other trouble it is not to blame."""
    try:
        run.load_state_dict(load_checkpoint(checkpoint))
        say(f"{run.training}: goes on after {run.progress}")
    except Unusable as error:
        bad = checkpoint.replace(checkpoint.with_name(f"{checkpoint.name}.bad"))
        say(f"{run.training}: starts anew: {error}; it is kept as {bad}")
    except (RuntimeError, ValueError, KeyError, TypeError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RuntimeError(f"{checkpoint} cannot be loaded ({reason}): mend that, or move it to start anew") from None


def _to_the_end(run: Run, checkpoint: Path, tell: Tell, every: float, step: Step) -> None:
    """Whoever stops it waits for the end of the step, and loses nothing."""
    saved = told = time.monotonic()
    with held() as stop:
        while not run.finished and not stop:
            try:
                row = run.advance()
            except Unread:
                save_checkpoint(checkpoint, run.state_dict())
                raise
            if time.monotonic() - saved >= every or run.finished:
                save_checkpoint(checkpoint, run.state_dict())  # also inside an epoch: one of ImageNet takes long
                saved = time.monotonic()
            if row is not None:
                tell(row)
            elif time.monotonic() - told >= PULSE:
                step(*run.place)
                told = time.monotonic()
        if stop:
            save_checkpoint(checkpoint, run.state_dict())
