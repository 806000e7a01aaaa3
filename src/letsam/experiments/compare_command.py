"""`letsam compare`: the run folder, the training, the result."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from ..terminal import console_on, stoppable
from .config import Config

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Compare:
    """Train several methods on one set of images, several seeds each, and say which won."""

    config: tyro.conf.OmitArgPrefixes[Config] = field(default_factory=Config)
    name: str | None = None
    """Name of the run folder; default: the time."""
    out: Path = Path("runs")
    """Where run folders live."""
    workers: int = min(2, os.cpu_count() or 1)
    """Training processes at a time, one core each."""
    device: str | None = None
    """cuda, cuda:1, cpu; default: a GPU if there is one, for the digits the CPU."""
    resume: bool = False
    """Go on with an interrupted run; its settings come from its folder."""
    overwrite: bool = False
    """Start anew in a run folder that exists."""
    json: bool = False
    """Print the result as JSON and nothing else on stdout."""


def compare(command: Compare) -> None:
    """Train, or go on, and show who won."""
    from . import folder as folders

    name = command.name if command.name is not None else time.strftime(f"{command.config.data}-%Y-%m-%d-%H%M%S")
    folders.check_name(name)
    if command.workers < 1:
        raise ValueError(f"--workers is {command.workers}; give at least 1")
    if command.resume and (command.overwrite or command.name is None):
        raise ValueError("--resume needs the --name of a run, and does not go with --overwrite")
    console = console_on(sys.stderr if command.json else sys.stdout)
    resume_line = folders.how_to_resume(command.out, name)
    folder, config = _folder(command, name, console)
    try:
        with stoppable(f"go on with: {resume_line}"), folders.locked(folder):
            _train_and_show(command, folder, config, console)
    except (OSError, RuntimeError) as error:
        raise RuntimeError(f"{error} (to go on: {resume_line})") from None


def _folder(command: Compare, name: str, console: Console) -> tuple[Path, Config]:
    """The run folder, new or found again, and its settings."""
    from . import folder as folders
    from .compare import check_methods
    from .source import load

    if not command.resume:
        config = command.config.resolved()
        check_methods(config)
        _device(command, config)  # this and the set, if they are not there, are told before anything is written
        load(config.data, None, "cpu")
        return folders.create(command.out, name, config, command.overwrite), config
    folder, config = folders.reopen(command.out, name)
    _refuse_other_settings(command.config, config)
    check_methods(config)
    if changed := folders.changed_environment(folder):
        console.print(
            f"note: {', '.join(changed)} changed since the run began; the numbers may differ in the last digits"
        )
    return folder, config


def _train_and_show(command: Compare, folder: Path, config: Config, console: Console) -> None:
    from . import compare as comparison
    from .display import result_table

    result = comparison.compare(config, folder, command.workers, _device(command, config), console)
    if command.json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    console.print(result_table(result))
    console.print(result["verdict"], markup=False, highlight=False)
    console.print(f"Report: {folder / 'report.html'}", markup=False, highlight=False, soft_wrap=True)


def _device(command: Compare, config: Config) -> str:
    """The digits are so small that a CPU is faster."""
    from .selection import chosen_device

    return chosen_device(command.device or ("cpu" if config.data == "digits" else None))


def _refuse_other_settings(given: Config, stored: Config) -> None:
    """--resume keeps the settings of the folder: one that was typed and differs is a mistake to tell."""
    for option in fields(Config):
        value = getattr(given, option.name)
        same = option.name in ("seeds", "methods") and getattr(given.resolved(), option.name)
        if value != option.default and getattr(stored, option.name) not in (value, same):
            flag = "--" + option.name.replace("_", "-")
            raise ValueError(f"--resume takes the settings of the run folder; drop {flag}, or start a new run")
