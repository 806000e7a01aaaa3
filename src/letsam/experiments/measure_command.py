"""`letsam measure`: sharpness, Hessian and landscapes of the finished runs of a table."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..terminal import print_line
from .lacking import complain, lacking
from .progress import Progress
from .recipe import Training, load_recipe
from .selection import Selection, loader

if TYPE_CHECKING:
    from rich.console import Console

    from .measures import Settings
    from .records import Record
    from .source import AnySet


@dataclass(frozen=True)
class Measure(Selection):
    """Measure how flat the minima of finished runs are: sharpness, Hessian, loss landscapes."""

    points: int = 21
    """Points on a side of the loss surface, from −1 to 1; odd."""
    images: int = 5000
    """Training images that sharpness and landscapes are measured on."""

    def command(self, row: str, column: str, training: Training) -> str:
        """The command that measures this run alone."""
        words = ["letsam", "measure", self.table, "--rows", row, "--columns", column, "--seeds", str(training.seed)]
        words += [] if self.scale == 1 else ["--scale", str(self.scale)]
        return shlex.join([*words, "--points", str(self.points), "--images", str(self.images)])


def measure(request: Measure, console: Console) -> None:
    """Measure every run that has a record and a checkpoint and was not measured yet."""
    from .measures import Settings
    from .records import records

    table = load_recipe(request.recipes, request.table)
    request.check(table)
    settings, device = Settings(points=request.points, images=request.images), request.chosen_device()
    done = records(request.results / table.records)
    wanted = [(r, c, run.scaled(request.scale)) for r, c, run in table.runs() if request.wants(r, c, run)]
    queue = [(r, c, run) for r, c, run in wanted if run.identity in done]
    if not queue:
        raise ValueError(f"none of these runs has a record in {request.results}: letsam reproduce {table.name} first")
    images, say = loader(request.data, device), partial(print_line, console)
    if len(queue) < len(wanted):
        say(f"{len(wanted) - len(queue)} of {len(wanted)} runs have no record yet")
    without, failed = lacking(queue, images, say), 0
    queue = [cell for cell in queue if cell[2].data not in without]
    with Progress(console, settings.passes * len(queue)) as progress:
        for i, (row, column, run) in enumerate(queue):
            place = request.work / table.records / run.identity
            where = request, place, progress, i * settings.passes
            command = request.command(row, column, run)
            failed += not _measure_run(*where, done[run.identity], run, images(run.data)[0], settings, device, command)
    if failed:
        raise RuntimeError(f"{failed} of {len(queue)} runs could not be measured; their lines above say why")
    complain(without)


def _measure_run(
    request: Measure,
    place: Path,
    progress: Progress,
    before: int,
    record: Record,
    run: Training,
    train: AnySet,
    settings: Settings,
    device: str,
    command: str,
) -> bool:
    """One run; what is wrong with its files is a line, and the next run has its turn. Whether nothing was."""
    from .checkpoint import Unusable
    from .folder import Busy, locked
    from .measures import measured
    from .record import write_json
    from .reproduce import make_folder, name_of

    path = request.results / "measures" / f"{name_of(run)}.json"
    trained = request.results / place.parent.name / path.name
    again = f"move {trained} away, and letsam reproduce {request.table} makes the run again"
    if path.exists():
        progress.say(f"{run}: measured already; delete {path} to measure it anew")
    elif not (place / f"{run.identity}.safetensors").exists():
        progress.say(f"{run}: no checkpoint in {place}; measure on the machine that trained it, or {again}")
        return False
    else:
        make_folder("--results", path.parent)
        try:
            with locked(place):
                tell = partial(_tell, progress, before, settings.passes, run)
                if not path.exists():  # another process may have finished it while we looked
                    write_json(path, measured(record, run, train, settings, place, device, command, tell))
                progress.tell(before + settings.passes, f"{run}: measured", last=True)
        except Busy:
            progress.say(f"{run}: another process is at it")
        except Unusable as error:
            progress.say(f"{run}: {error}; {again}")
            return False
        except ValueError as error:
            progress.say(f"{run}: {error}")
            return False
    return True


def _tell(progress: Progress, before: int, passes: int, run: Training, point: int) -> None:
    progress.tell(before + point, f"{run}: point {point} of {passes}")
