"""The command line. Every error is one line; torch, rich and plotly are imported by the command that needs them."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, get_args

try:
    import tyro
except ModuleNotFoundError:  # the library itself needs torch alone
    raise SystemExit("letsam: the command line needs its extra: pip install 'letsam[cli]'") from None

from .bench.settings import Settings
from .experiments.compare_command import Compare, compare
from .experiments.figures_command import Figures, figures
from .experiments.measure_command import Measure, measure
from .experiments.reproduce_command import Reproduce, reproduce
from .experiments.search_command import Search, search
from .experiments.study_command import Study, study
from .terminal import Stopped, console_on, stoppable


@dataclass(frozen=True)
class Bench:
    """Time a step of every method beside the plain loop and other implementations: table, JSON, bar chart."""

    settings: tyro.conf.OmitArgPrefixes[Settings] = field(default_factory=Settings)
    out: Path = Path("bench.json")
    """The record to write; the chart lies beside it as PNG."""
    json: bool = False
    """Print the record as JSON and nothing else on stdout."""
    show: Path | None = None
    """Draw the table and the chart of an existing record again and time nothing."""


@dataclass(frozen=True)
class Data:
    """Find or fetch a data set, check its hashes, store it, and say what there is."""

    name: tyro.conf.Positional[str]
    """cifar10, cifar100, fashion-mnist, imagenet, digits, iwslt14, multi30k or glue."""
    folder: Path | None = None
    """Where sets are stored; default: $LETSAM_DATA, else ~/.cache/letsam."""
    source: Path | None = None
    """A file or folder to take the set from, in place of a download; of glue also hf:nyu-mll/glue, by datasets."""


@dataclass(frozen=True)
class List:
    """List the methods, a line each."""


@dataclass(frozen=True)
class Describe:
    """Say what a method does: axes, cost, defaults and where they come from."""

    name: tyro.conf.Positional[str]
    """A method of letsam list."""


@dataclass(frozen=True)
class Report:
    """Build the page of a finished run again."""

    run: tyro.conf.Positional[str]
    """A run folder, or its name in runs/."""


Command = (
    Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Search, tyro.conf.subcommand("search")]
    | Annotated[Study, tyro.conf.subcommand("study")]
    | Annotated[Measure, tyro.conf.subcommand("measure")]
    | Annotated[Figures, tyro.conf.subcommand("figures")]
    | Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Describe, tyro.conf.subcommand("describe")]
    | Annotated[Report, tyro.conf.subcommand("report")]
)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 2 for wrong input, 1 for a failed run, 130 for Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that does not know ρ must not end a training
    if arguments == ["--version"]:
        print(f"letsam {metadata.version('letsam')}")
        return 0
    commands: dict[type, Callable[[Any], None]] = {
        Compare: compare,
        Bench: _bench,
        Data: _data,
        Reproduce: _reproduce,
        Search: _search,
        Study: _study,
        Measure: _measure,
        Figures: lambda request: figures(request, console_on(sys.stdout)),
        List: _list,
        Describe: _describe,
        Report: _report,
    }
    try:
        command: Any = _parse(arguments)
        commands[type(command)](command)
    except ValueError as error:
        return _complain(error, 2)
    except BrokenPipeError:  # the reader of our output has gone, as in letsam list | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, RuntimeError) as error:
        return _complain(error, 1)
    except Stopped as stop:
        return stop.code
    except KeyboardInterrupt:
        print("letsam: stopped", file=sys.stderr)
        return 130
    return 0


def _parse(arguments: list[str]) -> Any:
    """What tyro makes of the arguments; its boxed complaint becomes one line."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(
                Command,
                prog="letsam",
                description="Sharpness-aware training without a radius to tune. letsam --version prints the version.",
                args=arguments or ["--help"],
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as end:
        if not end.code:
            raise
        names = {kind.__origin__.__name__.lower() for kind in get_args(Command)}
        command = " ".join(["letsam", *(name for name in arguments[:1] if name in names)])
        raise ValueError(f"{_in_the_box(said.getvalue())} (see {command} --help)") from None


_HELP = ("For full helptext", "Argument helptext")


def _in_the_box(text: str) -> str:
    """What tyro's box says, without its title and its help; lines across the box divide it."""
    lines = [line.strip(" │╭╮╰╯") for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]
    parts = re.split(r"^[-─]{3,}$", "\n".join(lines[1:]), flags=re.MULTILINE)
    said = [" ".join(part.strip().split("\n\n")[0].split()) for part in parts]
    said = [part.replace(" (required)", "") for part in said if part and not part.startswith(_HELP)]
    return "; ".join(said)


def _complain(error: Exception, code: int) -> int:
    print(f"letsam: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def _bench(command: Bench) -> None:
    from .bench.command import bench, show

    console = console_on(sys.stderr if command.json else sys.stdout)
    if command.show is None:
        bench(command.settings, command.out, console, command.json)
    elif (command.settings, command.out) == (Settings(), Path("bench.json")):
        show(command.show, console, command.json)
    else:
        raise ValueError("--show draws a record again and takes --json alone; drop the other options")


def _data(command: Data) -> None:
    from .experiments.data.command import data

    data(command.name, command.folder, command.source, console_on(sys.stdout))


def _reproduce(request: Reproduce) -> None:
    with stoppable("the same command goes on"):
        reproduce(request, console_on(sys.stdout))


def _search(request: Search) -> None:
    with stoppable("the same command goes on"):
        search(request, console_on(sys.stdout))


def _study(request: Study) -> None:
    with stoppable("the same command goes on"):
        study(request, console_on(sys.stdout))


def _measure(request: Measure) -> None:
    with stoppable("the same command goes on"):
        measure(request, console_on(sys.stdout))


def _list(_: List) -> None:
    import letsam

    for name in letsam.list_methods():
        method = letsam.describe(name)
        print(f"{name:16} {method.passes:4.1f} passes  {method.summary}")


def _describe(command: Describe) -> None:
    import letsam

    print(letsam.describe(command.name))


def _report(command: Report) -> None:
    from .experiments.compare import conclude
    from .experiments.folder import read_config

    folder = next((path for path in (Path(command.run), Path("runs") / command.run) if path.is_dir()), None)
    if folder is None:
        raise ValueError(f"no run folder {command.run}, neither here nor in runs/")
    conclude(folder, read_config(folder))
    print(folder / "report.html")
