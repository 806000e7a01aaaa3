"""One run of a comparison: what its method and seed stand for, in the one training loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .config import Job, Spec
from .loop import Run, Tell, train_run
from .record import write_json
from .reproduce import name_of, record
from .source import AnySet
from .training import Training

RECORDS, CHECKPOINTS = "records", "checkpoints"
"""Parts of the run folder."""
SHARED = ("data", "model", "images", "epochs", "noise", "base", "lr", "weight_decay")
"""Settings that mean the same in a comparison and in a run."""
BACK = 0.25
"""The share of the epochs, at the end, in which auto-* train on what they held out, too."""


def training(job: Job) -> Training:
    """The settings. auto-* hold a tenth of the images out, lets-* validate on those that they train on."""
    config, spec = job.config, Spec.parse(job.method)
    options, digits = dict(spec.options), config.data == "digits"
    held_out: dict[str, Any] = {"validation": "held-out", "back": BACK} if spec.name.startswith("auto-") else {}
    return Training(
        method=spec.name,
        rho=options.pop("rho", None),
        options=options,
        seed=job.seed,
        batch=config.batch_size or 0,
        augment=not digits,
        precision="float32" if digits else "bfloat16",
        **{name: getattr(config, name) for name in SHARED},
        **held_out,
    )


def train(
    job: Job, folder: Path, sets: tuple[AnySet, AnySet], device: str, tell: Tell, say: Callable[[str], None]
) -> None:
    """Train from the last checkpoint, or from the start, to the end, and leave a record."""
    settings = training(job)
    run = train_run(lambda: Run(settings, *sets, device), folder / CHECKPOINTS, tell, say)
    write_json(folder / RECORDS / f"{name_of(settings)}.json", record(run))
