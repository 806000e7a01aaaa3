"""Runs that a search asks for one at a time: the next one depends on the records of those before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import reproduce_command
from .plan import Planned, Speeds
from .progress import Progress
from .recipe import Training
from .reproduce_command import Reproduce, after_epoch, in_epoch, maker
from .selection import loader

if TYPE_CHECKING:
    from .loop import Run
    from .record import Row
    from .records import Record


def runner(
    request: Reproduce,
    folder: str,
    device: str,
    speeds: Speeds,
    progress: Progress,
    finish: Callable[[Run], Record] | None = None,
) -> Callable[[str, Training], Record]:
    """A function of a name for the progress and a run: makes it if it has no record in the folder; its record."""
    from .record import read_json
    from .reproduce import name_of, run_all

    make, results, work = maker(loader(request.data, device), device), request.results / folder, request.work / folder
    for place in (results, work):
        place.mkdir(parents=True, exist_ok=True)
    done = 0.0

    def tell(run: Planned, row: Row) -> None:
        share = row["epoch"] / run.training.epochs
        progress.tell(done + run.minutes * share, f"{run.row}, {after_epoch(run, row)}", last=share == 1)

    def tell_step(run: Planned, epoch: int, step: int, steps: int) -> None:
        share = (epoch - 1 + step / steps) / run.training.epochs
        text, pause = f"{run.row}, {in_epoch(run, epoch, step, steps)}", reproduce_command.QUIET
        progress.tell(done + run.minutes * share, text, pause=pause)

    def run(name: str, training: Training) -> Record:
        nonlocal done
        planned = Planned(folder, name, "", training, *speeds.minutes(training))
        path = results / f"{name_of(training)}.json"
        if not path.exists():
            run_all([planned], make, work, results, tell, progress.say, finish, tell_step)
        done += planned.minutes
        if not path.exists():
            raise ValueError(f"another process is at {training}; wait for it, then give the same command")
        found: Record = read_json(path)
        return found

    return run
