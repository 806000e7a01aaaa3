"""What to run next: the runs of a table that have no record, the most useful first, with the minutes they take here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import letsam

from .data.glue import GLUE
from .recipe import Table, Training
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
    "cola": 8_551,
    "sst2": 67_349,
    "mrpc": 3_668,
    "stsb": 5_749,
    "qqp": 363_846,
    "mnli": 392_702,
    "qnli": 104_743,
    "rte": 2_490,
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
    "transformer-iwslt": 0.037,
    "transformer-tiny": 0.0026,
    "microsoft/deberta-base": 15.0,
    "sentence-transformers/all-MiniLM-L6-v2": 1.4,
}
"""Multiplications of a forward pass, an image, a token or a sentence of 128 tokens, in 10⁹: for a machine where
nothing was measured yet."""
CHECKPOINT = 11.0
"""Of a checkpoint that is not among them: an encoder of base size."""
ASSUMED = {"cuda": 100.0, "cpu": 0.05}
"""10¹² operations a second that such a machine is taken to do."""


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


class Speeds:
    """Milliseconds of a pass by device, model and batch, from the records of benchmarks and of finished runs."""

    def __init__(self, folders: Iterable[Path], device: str) -> None:
        self._kind = "cpu" if device == "cpu" else "cuda"
        self._known: dict[tuple[str, int], float] = {}
        for folder in folders:
            steps = [_from_bench(record) for _, record in of_kind(folder, BENCH) if _device(record) == device]
            runs = [_from_run(record) for record in records(folder).values() if _device(record) == device]
            for kind, ms in (found for part in (*steps, *runs) for found in part.items()):
                self._known[kind] = min(ms, self._known.get(kind, ms))  # a run may have shared the device

    def minutes(self, training: Training) -> tuple[float, bool]:
        """How long a run takes, and whether that was measured."""
        ms = self._known.get((_what(training), training.batch))
        guess = self._guess(training) if ms is None else ms
        return guess * passes(training) / 60_000, ms is not None

    def _guess(self, training: Training) -> float:
        """From another batch of the same model, else from the multiplications it takes."""
        what = _what(training)
        others = [ms * training.batch / batch for (model, batch), ms in self._known.items() if model == what]
        if others:
            return min(others)
        operations = 3 * 2e9 * _gflop(training) * training.batch
        return 1000 * operations / (ASSUMED[self._kind] * 1e12)


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


def within(things: list[Thing], minutes: float, cost: Callable[[Thing], float]) -> list[Thing]:
    """As many of them, in their order, as fit into the time; what does not fit leaves room for what does."""
    chosen, left = [], minutes
    for thing in things:
        if cost(thing) <= left:
            chosen.append(thing)
            left -= cost(thing)
    return chosen


def _usefulness(run: Planned) -> tuple[Any, ...]:
    method = run.training.method
    rank = ANCHORS.index(method) if method in ANCHORS else len(ANCHORS)
    return run.training.seed, run.training.epochs * _gflop(run.training), rank, run.minutes


def _what(training: Training) -> str:
    """What a pass goes through: the model; of sentences the task, too, since its rows have a length of their own."""
    return f"{training.model} on {training.data}" if training.data in GLUE else training.model


def _gflop(training: Training) -> float:
    share = training.length / 128 if training.data in GLUE else 1.0
    return GFLOP.get(training.model, CHECKPOINT) * share


def _device(record: dict[str, Any]) -> str | None:
    return record.get("environment", {}).get("device")


def _from_bench(record: dict[str, Any]) -> dict[tuple[str, int], float]:
    """The fastest plain step of ours in a record of `letsam bench`."""
    rows = [r for r in record["rows"] if r.get("kind") == "letsam" and r.get("name") == "erm" and r.get("ms")]
    what = record["settings"].get("model"), record["settings"].get("batch")
    return {what: min(row["ms"] for row in rows)} if rows and None not in what else {}


def _from_run(record: dict[str, Any]) -> dict[tuple[str, int], float]:
    """Of a finished run: everything in it, shared out among its passes."""
    training = training_of(record)
    return (
        {}
        if not record.get("seconds")
        else {(_what(training), training.batch): 1000 * record["seconds"] / passes(training)}
    )
