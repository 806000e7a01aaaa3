"""The command line. Every error is one line; torch, rich and plotly are imported by the command that needs them."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

try:
    import tyro
except ModuleNotFoundError:  # the library itself needs torch alone
    raise SystemExit("letsam: the command line needs its extra: pip install 'letsam[cli]'") from None

from .bench.settings import Settings
from .experiments.config import Config
from .experiments.reproduce_command import Reproduce, reproduce

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Compare:
    """Train several methods on handwritten digits, several seeds each, and say which won."""

    config: tyro.conf.OmitArgPrefixes[Config] = field(default_factory=Config)
    name: str | None = None
    """Name of the run folder; default: the time."""
    out: Path = Path("runs")
    """Where run folders live."""
    workers: int = min(2, os.cpu_count() or 1)
    """Training processes at a time, one core each."""
    resume: bool = False
    """Go on with an interrupted run; its settings come from its folder."""
    overwrite: bool = False
    """Start anew in a run folder that exists."""
    json: bool = False
    """Print the result as JSON and nothing else on stdout."""


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
    """cifar10, cifar100, fashion-mnist, imagenet or digits."""
    folder: Path | None = None
    """Where sets are stored; default: $LETSAM_DATA, else ~/.cache/letsam."""
    source: Path | None = None
    """A file or folder to take the set from, in place of a download."""


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
    | Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Describe, tyro.conf.subcommand("describe")]
    | Annotated[Report, tyro.conf.subcommand("report")]
)


class Stopped(BaseException):
    """The user or the system asked us to stop; `code` is the exit code."""

    def __init__(self, code: int) -> None:
        self.code = code


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 2 for wrong input, 1 for a failed run, 130 for Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"letsam {metadata.version('letsam')}")
        return 0
    commands: dict[type, Callable[[Any], None]] = {
        Compare: _compare,
        Bench: _bench,
        Data: _data,
        Reproduce: _reproduce,
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
        text = re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue())
        lines = [line.strip(" │|╭╮╰╯─+-") for line in text.splitlines()]
        useful = [line for line in lines if line and not line.lower().startswith(("parsing error", "for full help"))]
        raise ValueError("; ".join(useful[:2]) + " (see letsam --help)") from None


def _complain(error: Exception, code: int) -> int:
    print(f"letsam: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def _compare(command: Compare) -> None:
    from .experiments import folder as folders

    name = command.name if command.name is not None else time.strftime("digits-%Y-%m-%d-%H%M%S")
    folders.check_name(name)
    if command.workers < 1:
        raise ValueError(f"--workers is {command.workers}; give at least 1")
    if command.resume and (command.overwrite or command.name is None):
        raise ValueError("--resume needs the --name of a run, and does not go with --overwrite")
    console = _console(sys.stderr if command.json else sys.stdout)
    resume_line = folders.how_to_resume(command.out, name)
    folder, config = _folder(command, name, console)
    signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        with folders.locked(folder):
            _train_and_show(command, folder, config, console)
    except (KeyboardInterrupt, Stopped) as stop:
        print(f"letsam: stopped; go on with: {resume_line}", file=sys.stderr)
        raise Stopped(stop.code if isinstance(stop, Stopped) else 130) from None
    except (OSError, RuntimeError) as error:
        raise RuntimeError(f"{error} (to go on: {resume_line})") from None


def _folder(command: Compare, name: str, console: Console) -> tuple[Path, Config]:
    """The run folder, new or found again, and its settings."""
    from .experiments import folder as folders
    from .experiments.compare import check_methods

    if not command.resume:
        config = command.config.resolved()
        check_methods(config)
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
    from .experiments.compare import compare
    from .experiments.display import result_table

    result = compare(config, folder, command.workers, console)
    if command.json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    console.print(result_table(result))
    console.print(result["verdict"], markup=False, highlight=False)
    console.print(f"Report: {folder / 'report.html'}", markup=False, highlight=False, soft_wrap=True)


def _refuse_other_settings(given: Config, stored: Config) -> None:
    """--resume keeps the settings of the folder: one that was typed and differs is a mistake to tell."""
    for option in fields(Config):
        value = getattr(given, option.name)
        same = option.name in ("seeds", "methods") and getattr(given.resolved(), option.name)
        if value != option.default and getattr(stored, option.name) not in (value, same):
            flag = "--" + option.name.replace("_", "-")
            raise ValueError(f"--resume takes the settings of the run folder; drop {flag}, or start a new run")


def _console(stream: Any) -> Console:
    from rich.console import Console

    return Console(file=stream) if stream.isatty() else Console(file=stream, width=100, color_system=None)


def _on_sigterm(*_: Any) -> None:
    raise Stopped(143)


def _bench(command: Bench) -> None:
    from .bench.command import bench, show

    console = _console(sys.stderr if command.json else sys.stdout)
    if command.show is None:
        bench(command.settings, command.out, console, command.json)
    elif (command.settings, command.out) == (Settings(), Path("bench.json")):
        show(command.show, console, command.json)
    else:
        raise ValueError("--show draws a record again and takes --json alone; drop the other options")


def _data(command: Data) -> None:
    from .experiments.data.command import data

    data(command.name, command.folder, command.source, _console(sys.stdout))


def _reproduce(request: Reproduce) -> None:
    signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        reproduce(request, _console(sys.stdout))
    except (KeyboardInterrupt, Stopped) as stop:
        print("letsam: stopped; the same command goes on", file=sys.stderr)
        raise Stopped(stop.code if isinstance(stop, Stopped) else 130) from None


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
