"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Unwritten(OSError):
    """A file that could not be written; what was there before still is."""

    def __str__(self) -> str:
        fix = "free some space" if self.errno in FULL else "see to it"
        return f"cannot write {self.filename}: {self.strerror}; {fix}, and run the same command again"


def write(path: Path, content: str | bytes) -> None:
    """Write all or nothing: a temporary file beside it, flushed to the disk, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Unwritten(error.errno, error.strerror or type(error).__name__, str(path)) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
