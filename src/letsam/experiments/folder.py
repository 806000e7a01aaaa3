"""The run folder: made whole or not at all, locked while in use, never overwritten by accident."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .config import Config
from .record import environment, read_json, write_json

try:
    import fcntl
except ImportError:  # not on Windows; there two processes in one folder are the user's to avoid
    fcntl = None  # type: ignore[assignment]

DEFAULT_OUT = Path("runs")


def check_name(name: str) -> None:
    """A run name is the name of one folder."""
    if not name or name.startswith(".") or len(name.encode()) > 100 or not name.isprintable() or set(name) & set("/\\"):
        raise ValueError(f"--name {name!r} is no folder name: use up to 100 characters, no slash, no leading dot")


def how_to_resume(out: Path, name: str) -> str:
    """The command that goes on with a run."""
    where = [] if out == DEFAULT_OUT else ["--out", str(out)]
    return shlex.join(["letsam", "compare", "--name", name, *where, "--resume"])


def create(out: Path, name: str, config: Config, overwrite: bool) -> Path:
    """A new run folder with its configuration and environment; an existing run only makes way when told to."""
    folder = out / name
    if os.path.lexists(folder):
        if not overwrite:
            raise ValueError(f"{folder} exists already: add --resume to go on, --overwrite to start anew, or --name")
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} is no run folder, so --overwrite leaves it alone; choose another --name")
    with _one_line(folder):
        out.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=out))
        try:
            fresh.chmod(0o755)
            for part in ("records", "checkpoints"):
                (fresh / part).mkdir()
            write_json(fresh / "config.json", {**config.to_json(), "name": name})
            write_json(fresh / "environment.json", environment())
            _put_in_place(fresh, folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    return folder


def reopen(out: Path, name: str) -> tuple[Path, Config]:
    """An existing run folder and its configuration; leftovers of a killed process are swept out."""
    folder = out / name
    config = read_config(folder)
    with _one_line(folder):
        for leftover in folder.glob("**/.*.tmp"):
            leftover.unlink(missing_ok=True)
        for part in ("records", "checkpoints"):
            (folder / part).mkdir(exist_ok=True)
        probe = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # tells now, not after the first epoch
        probe.close()
    return folder, config


def read_config(folder: Path) -> Config:
    """The configuration of a run folder, or ValueError with one line."""
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} is no run folder (no config.json in it)")
    data = read_json(folder / "config.json")
    try:
        return Config.from_json({key: value for key, value in data.items() if key != "name"})
    except (ValueError, TypeError, AttributeError, AssertionError) as error:
        raise ValueError(f"{folder / 'config.json'} is damaged {error}".rstrip()) from None


def changed_environment(folder: Path) -> list[str]:
    """What differs from the environment that the run began in and may change its numbers."""
    before: Any = read_json(folder / "environment.json")
    now = environment()
    return [key for key in ("letsam", "torch", "numpy", "torch_cpu_capability") if before.get(key) != now[key]]


class Busy(ValueError):
    """Another process has the lock."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time; the lock ends with the process, however it ends."""
    file: IO[str] = (folder / ".lock").open("w")
    with file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.register_at_fork(after_in_child=file.close)  # or forked workers would hold it after our end
        except BlockingIOError:
            raise Busy(f"another letsam process is at work in {folder}") from None
        yield


def _put_in_place(fresh: Path, folder: Path) -> None:
    if not os.path.lexists(folder):
        fresh.rename(folder)
        return
    with locked(folder):
        old = Path(tempfile.mkdtemp(prefix=".old-", dir=folder.parent))
        folder.rename(old / folder.name)
        fresh.rename(folder)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _one_line(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValueError(f"cannot write {folder}: {reason}; choose another place with --out") from None
