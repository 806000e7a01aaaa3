"""The main job: several methods on one task, several seeds, one answer."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console

import letsam

from .config import Config, Job, Spec
from .display import Display, LiveDisplay
from .models.small_cnn import small_cnn
from .pool import work
from .record import write_json
from .summary import Rows, summarize
from .train import finished, optimizer


def check_methods(config: Config) -> None:
    """Build every method once, so that a wrong name or option is found before anything is written."""
    for method in config.methods:
        try:
            optimizer(Spec.parse(method), small_cnn(), config)
        except (ValueError, TypeError) as error:
            raise ValueError(f"method {method}: {' '.join(str(error).split())}") from None


def jobs_of(config: Config) -> list[Job]:
    """All runs, the longest first: the last ones to end are then short, and no worker waits long."""
    jobs = [Job(config, method, seed) for seed in config.seeds for method in config.methods]
    return sorted(jobs, key=lambda job: -cost(job))


def cost(job: Job) -> float:
    """Expected passes of a step."""
    return letsam.describe(Spec.parse(job.method).name).passes


def compare(config: Config, folder: Path, workers: int, console: Console) -> dict[str, Any]:
    """Train what is not trained yet, then write result.json and report.html; returns the result."""
    jobs = jobs_of(config)
    waiting = [job for job in jobs if finished(job, folder) is None]
    kind = LiveDisplay if console.is_terminal else Display
    display = kind(console, {job: cost(job) for job in jobs}, set(jobs) - set(waiting))
    with display, closing(work(waiting, folder, workers)) as messages:
        for event, job, content in messages:
            if event == "start":
                display.start(job)
            elif event == "epoch":
                display.epoch(job, content)
            elif event == "note":
                display.note(content)
            else:
                display.end(job)
    return conclude(folder, config)


def conclude(folder: Path, config: Config) -> dict[str, Any]:
    """From the metrics of a finished comparison: result.json and report.html."""
    from ..report import write_report

    rows = read_runs(folder, config)
    result = summarize(config, rows)
    write_json(folder / "result.json", result)
    write_report(folder, config, result, rows)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return result


def read_runs(folder: Path, config: Config) -> Rows:
    """The metrics of all runs; ValueError if one is not done."""
    rows: Rows = {}
    for job in jobs_of(config):
        run = finished(job, folder)
        if run is None:
            raise ValueError(f"{folder} is not finished ({job} is missing): go on with letsam compare --resume")
        rows[job.method, job.seed] = run
    return rows
