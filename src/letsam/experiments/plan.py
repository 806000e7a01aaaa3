"""What to run next: the runs of a table that have no record, the most useful first, with the minutes they take here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

import letsam

from .checkpoint import epochs_of
from .data.glue import GLUE
from .recipe import Table, Training
from .record import environment
from .records import BENCH, of_kind, records, training_of

Thing = TypeVar("Thing")
ANCHORS = ("erm", "sam", "lets-sam", "asam", "lets-asam")
"""What every other cell is compared with comes first."""
SAMPLES = {
    "cifar10": 50_000,
    "cifar100": 50_000,
    "fashion-mnist": 60_000,
    "imagenet": 1_281_167,
    "digits": 1000,
    "iwslt14": 4_600_000,
    "multi30k": 600_000,
    **{name: corpus.counts["train"] for name, corpus in GLUE.items()},
}
"""Images or classified sentences of an epoch; of translation the tokens of the longer side, padding included."""
PAIRS = {"iwslt14": 160_239, "multi30k": 28_998}
GFLOP = {
    "resnet18": 0.56,
    "resnet32": 0.07,
    "resnet50": 4.1,
    "wrn28-10": 5.2,
    "pyramidnet110": 4.7,
    "vit-s": 1.4,
    "small-cnn": 0.001,
    "mlp": 0.0003,
    "transformer-iwslt": 0.037,
    "transformer-tiny": 0.0026,
    "microsoft/deberta-base": 15.0,
    "sentence-transformers/all-MiniLM-L6-v2": 1.4,
}
"""Multiplications of a forward pass, an image, a token or a sentence of 128 tokens, in 10⁹: for a machine where
nothing was measured yet."""
TOKENS = {
    "cola": 32,
    "sst2": 48,
    "mrpc": 88,
    "stsb": 80,
    "qqp": 80,
    "mnli": 96,
    "qnli": 112,
    "rte": 208,
}
"""Of a row in a batch of 32, padding included, if the recipe's length is no less: counted with MiniLM's tokenizer, but
for SST-2, QQP and MNLI, which are guesses."""
CHECKPOINT = 11.0
"""Of a checkpoint that is not among them: an encoder of base size."""
ASSUMED = {"cuda": 100.0, "cpu": 0.05}
"""10¹² operations a second that such a machine is taken to do."""
LAUNCH = {"cuda": 2.5, "cpu": 0.0}
"""Milliseconds of a pass that is not compiled, at least: kernels are launched one after the other, however small."""
LOOP, START, COMPILE = 1.5, {"cuda": 0.1, "cpu": 0.0}, {"cuda": 0.9, "cpu": 0.0}
"""What a run takes beside the bare steps of a benchmark: batches and tests, as a factor, minutes to begin, and minutes
to compile. Chosen by the runs of ERM, SAM and LETS-SAM on CIFAR-10 on an H200: within a tenth of the fastest of each.
Runs that shared the GPU took up to 1.6 times as long, and other networks were not looked at."""
Key = tuple[str, ...]
Pace = tuple[float, float]
"""(milliseconds of a pass, with everything else of the run in it, but for the seconds of the start)."""


@dataclass(frozen=True)
class Planned:
    """A run that is still to do."""

    table: str
    row: str
    column: str
    training: Training
    minutes: float
    measured: bool
    """Whether the minutes come from a measurement on such a device."""
    done: int = 0
    """Epochs that a checkpoint has; the minutes are those of the rest."""


class Speeds:
    """How long runs take on a device: by finished runs there, else by the bare steps of benchmarks."""

    def __init__(self, folders: Iterable[Path], device: str) -> None:
        self._kind, here = "cpu" if device == "cpu" else "cuda", machine(device)
        self._runs: dict[Key, Pace] = {}
        self._steps: dict[tuple[str, int], float] = {}
        for folder in folders:
            for record in (record for record in records(folder).values() if _machine(record) == here):
                for key, pace in _from_run(record).items():
                    self._runs[key] = min(pace, self._runs.get(key, pace))  # others may have shared the device
            for record in (record for _, record in of_kind(folder, BENCH) if _machine(record) == here):
                for what, ms in _from_bench(record).items():
                    self._steps[what] = min(ms, self._steps.get(what, ms))

    def minutes(self, training: Training) -> tuple[float, bool]:
        """How long a run takes, and whether that was measured."""
        pace, measured = self._pace(training)
        if pace is not None:
            return (pace[1] + pace[0] * passes(training) / 1000) / 60, measured
        step = self._steps.get((training.model, training.batch))
        ms = LOOP * (self._guess(training) if step is None else step)
        start = START[self._kind] + (COMPILE[self._kind] if training.compile else 0)
        return start + ms * passes(training) / 60_000, step is not None

    def _pace(self, training: Training) -> tuple[Pace | None, bool]:
        """Of runs like this one; else of those with another batch, which is then a guess."""
        like = [self._runs[key] for key in _keys(training) if key in self._runs]
        what = _keys(training)[1]
        others = [
            (ms * training.batch / int(key[2]), start)
            for key, (ms, start) in self._runs.items()
            if key[:2] == what[:2] and key[3:] == what[3:]
        ]
        return like[0] if like else min(others, default=None), bool(like)

    def _guess(self, training: Training) -> float:
        """From another batch of the same model, else from the multiplications it takes."""
        steps = [ms * training.batch / batch for (model, batch), ms in self._steps.items() if model == training.model]
        operations = 3 * 2e9 * _gflop(training) * training.batch
        least = 0 if training.compile else LAUNCH[self._kind]
        return min(steps, default=max(least, 1000 * operations / (ASSUMED[self._kind] * 1e12)))


def steps_per_epoch(training: Training) -> int:
    """The last, shorter batch counts."""
    whole = SAMPLES[training.data]
    if training.images:
        whole = round(whole * training.images / PAIRS[training.data]) if training.data in PAIRS else training.images
    return math.ceil(whole / training.batch)


def passes(training: Training) -> float:
    """Forward and backward passes of a whole run."""
    return letsam.describe(training.method).passes * steps_per_epoch(training) * training.epochs


def missing(table: Table, done: set[str], speeds: Speeds, scale: float = 1.0) -> list[Planned]:
    """The runs without a record: all cells of the first seed before the second, anchors first, then the cheap ones."""
    plan = []
    for row, column, whole in table.runs():
        training = whole.scaled(scale)
        if training.identity not in done:
            plan.append(Planned(table.name, row, column, training, *speeds.minutes(training)))
    return sorted(plan, key=_usefulness)


def to_go(run: Planned, work: Path) -> Planned:
    """The same with the minutes that are left of it, if a checkpoint of it is in the folder."""
    identity, epochs = run.training.identity, run.training.epochs
    done = min(epochs, epochs_of(work / identity / f"{identity}.safetensors"))
    return replace(run, minutes=run.minutes * (1 - done / epochs), done=done)


def within(things: list[Thing], minutes: float, cost: Callable[[Thing], float]) -> list[Thing]:
    """As many of them, in their order, as fit into the time; what does not fit leaves room for what does."""
    if not minutes > 0:
        raise ValueError(f"--minutes is {minutes:g}; give a positive number")
    chosen, left = [], minutes
    for thing in things:
        if cost(thing) <= left:
            chosen.append(thing)
            left -= cost(thing)
    if things and not chosen:
        shortest = min(map(cost, things))
        raise ValueError(f"nothing fits into --minutes {minutes:g}; the shortest takes {shortest:.1f} minutes")
    return chosen


def _usefulness(run: Planned) -> tuple[Any, ...]:
    method = run.training.method
    rank = ANCHORS.index(method) if method in ANCHORS else len(ANCHORS)
    return run.training.seed, run.training.epochs * _gflop(run.training), rank, run.minutes


def _keys(training: Training) -> list[Key]:
    """What runs of like pace share: network, data and batch, and if there are any, the method."""
    what = training.model, training.data, str(training.batch), str(training.length)
    return [(*what, training.method), what]


def _gflop(training: Training) -> float:
    share = min(training.length, TOKENS[training.data]) / 128 if training.data in GLUE else 1.0
    return GFLOP.get(training.model, CHECKPOINT) * share


def machine(device: str) -> tuple[str, ...]:
    """What decides how fast a device of this machine is: the GPU, or the processor, since every CPU is called cpu."""
    return (device, environment()["processor"]) if device == "cpu" else (device,)


def _machine(record: dict[str, Any]) -> tuple[Any, ...]:
    """The same of a record."""
    of = record.get("environment", {})
    return (of.get("device"), of.get("processor")) if of.get("device") == "cpu" else (of.get("device"),)


def _from_bench(record: dict[str, Any]) -> dict[tuple[str, int], float]:
    """The fastest plain step of ours in a record of `letsam bench`."""
    rows = [r for r in record["rows"] if r.get("kind") == "letsam" and r.get("name") == "erm" and r.get("ms")]
    what = record["settings"].get("model"), record["settings"].get("batch")
    return {what: min(row["ms"] for row in rows)} if rows and None not in what else {}


def _from_run(record: dict[str, Any]) -> dict[Key, Pace]:
    """Of a finished run: its epochs, shared out among their passes; the first one is longer by what compiling takes."""
    training, epochs = training_of(record), [row.get("seconds_with_test") for row in record["rows"]]
    if not epochs or None in epochs:
        return {}
    later = mean(epochs[1:] or epochs)
    pace = 1000 * later * training.epochs / passes(training), max(0.0, epochs[0] - later)
    return dict.fromkeys(_keys(training), pace)
