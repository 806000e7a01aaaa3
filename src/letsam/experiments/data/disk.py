"""Errors of the disk as one line that names the fix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...files import FULL


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Around every write into the data folder: a full disk is a failed run, a wrong place is wrong input."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(folder) from None
        reason = error.strerror or type(error).__name__
        raise ValueError(f"cannot write {folder}: {reason}; choose another place with --folder") from None


def disk_full(folder: Path) -> RuntimeError:
    """The error for a disk with no space left; what has come of a download is a .part, and that of npm is not kept."""
    kept = " (the download goes on where it stopped)" if folder.suffix == ".part" else ""
    return RuntimeError(
        f"no space left for {folder}: free some and run the same command again{kept}, or choose another place with "
        "--folder"
    )
