"""`letsam study price`: the runs of the searches, one after the other, and the bill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from . import plan as plans
from .one_run import runner
from .progress import Progress
from .recipe import Table, Training
from .reproduce_command import Reproduce, plan_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from .loop import Run
    from .records import Record
    from .search import Price, Search

PRICE = "price"


def price(request: Reproduce, table: Table, console: Console) -> None:
    """Plan, make the searches that fit into the time, write a record of each, show the bill."""
    from .record import device_name
    from .records import records
    from .search import bill_rows, load_optuna, made

    request.check(table)
    device, folder = request.chosen_device(), request.results / PRICE
    speeds = plans.Speeds([request.results / "bench", request.results / table.records, folder], device_name(device))
    queue, done = _wanted(request, table), records(folder)
    to_do = {search.name: _planned(search.without(done), search.column, speeds) for search in queue}
    if request.minutes is not None:
        cost = lambda search: sum(run.minutes for run in to_do[search.name])  # noqa: E731
        queue = plans.within(queue, request.minutes, cost)
    if request.plan:
        console.print(plan_table([run for search in queue for run in to_do[search.name]], device_name(device)))
        return
    load_optuna()  # or its absence would be told after the first runs
    minutes = sum(run.minutes for search in queue for run in _planned(search.runs, search.column, speeds))
    with Progress(console, minutes) as progress:
        run = runner(request, PRICE, device, speeds, progress, _finished(request, device))
        for search in queue:
            _write(folder / f"{search.name}.json", search, made(search, run))
    for search in {search.column: search for search in queue}.values():
        console.print(_shown(search.column, bill_rows(folder, search.column, search.auto.epochs)))


def _wanted(request: Reproduce, table: Table) -> list[Search]:
    """Of the columns that were asked for, else of the digits."""
    from .search import searches

    columns = request.columns or tuple(c for c in table.columns if table.cell("auto-sam", c, 0).data == "digits")
    every = [search for column in columns for search in searches(table, column, request.scale)]
    return [search for search in every if not request.seeds or search.seed in request.seeds]


def _planned(runs: list[tuple[str, Training]], column: str, speeds: plans.Speeds) -> list[plans.Planned]:
    return [plans.Planned(PRICE, name, column, training, *speeds.minutes(training)) for name, training in runs]


def _write(path: Path, search: Search, price: Price) -> None:
    """A record that says the same stays as it is: its environment is that of the runs."""
    from .record import write_json
    from .records import PRICE as KIND
    from .records import of_kind
    from .search import price_record

    if dict(of_kind(path.parent, KIND)).get(path, {}).get("trials") != price:
        write_json(path, price_record(search, price))


def _finished(request: Reproduce, device: str) -> Callable[[Run], Record]:
    """The record of a run, with the accuracy on what was held out and the steps of an epoch."""
    from .data.images import Images
    from .image_task import ImageTask
    from .reproduce import record
    from .selection import loader
    from .source import parts

    images = loader(request.data, device)

    def finish(run: Run) -> Record:
        train, _ = images(run.training.data)
        assert isinstance(train, Images)  # every task of the study is
        held_out = ImageTask(run.training, train, parts(run.training, train)[1], run.device)
        found = held_out.evaluate(run.model.eval(), run.autocast, last=True)
        return record(run) | {"held_out_accuracy": found["test_accuracy"], "steps": run.steps}

    return finish


def _shown(column: str, rows: list[list[str]]) -> RichTable:
    from rich.table import Table as RichTable

    shown = RichTable(title=f"What a radius costs: {column}", title_justify="left")
    for i, heading in enumerate(rows[0]):
        shown.add_column(heading, justify="right" if i else "left")
    for row in rows[1:]:
        shown.add_row(*row)
    return shown
