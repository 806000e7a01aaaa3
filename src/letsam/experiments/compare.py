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
from .folder import how_to_resume
from .models.small_cnn import small_cnn
from .optimizers import optimizer
from .pool import work
from .record import write_json
from .records import records
from .summary import Records, summarize
from .train import CHECKPOINTS, RECORDS, training


def check_methods(config: Config) -> dict[str, float | None]:
    """Build every method once, so that a wrong name or option is found before anything is written; their radii."""
    radii: dict[str, float | None] = {}
    for method in config.methods:
        try:
            opt = optimizer(training(Job(config, method, config.seeds[0])), small_cnn(), total_steps=1)
        except (ValueError, TypeError) as error:
            raise ValueError(f"method {method}: {' '.join(str(error).split())}") from None
        radii[method] = None if isinstance(opt.policy, letsam.Never) else float(opt.param_groups[0]["sam_rho"])
    return radii


def jobs_of(config: Config) -> list[Job]:
    """All runs, the longest first: the last ones to end are then short, and no worker waits long."""
    jobs = [Job(config, method, seed) for seed in config.seeds for method in config.methods]
    return sorted(jobs, key=lambda job: -cost(job))


def cost(job: Job) -> float:
    """Expected passes of a step."""
    return letsam.describe(Spec.parse(job.method).name).passes


def compare(config: Config, folder: Path, workers: int, device: str, console: Console) -> dict[str, Any]:
    """Train what is not trained yet, then write result.json and report.html; returns the result."""
    jobs, done = jobs_of(config), records(folder / RECORDS)
    waiting = [job for job in jobs if training(job).identity not in done]
    kind = LiveDisplay if console.is_terminal else Display
    display = kind(console, {job: cost(job) for job in jobs}, set(jobs) - set(waiting))
    with display, closing(work(waiting, folder, workers, device)) as messages:
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
    """From the records of a finished comparison: result.json and report.html."""
    from ..report import write_report

    found = read_runs(folder, config)
    result = summarize(config, found, check_methods(config))
    write_json(folder / "result.json", result)
    write_report(folder, config, result, found)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return result


def read_runs(folder: Path, config: Config) -> Records:
    """The records of all runs; ValueError if one is not there."""
    done, found = records(folder / RECORDS), {}
    for job in jobs_of(config):
        identity = training(job).identity
        if identity not in done:
            resume = how_to_resume(folder.parent, folder.name)
            raise ValueError(f"{folder} is not finished ({job} is missing): go on with {resume}")
        found[job.method, job.seed] = done[identity]
    return found
