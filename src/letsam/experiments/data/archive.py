"""Files out of a tar.gz archive, into memory: no path of the archive is ever written to."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from pathlib import Path


def read_members(path: Path, limits: dict[str, int]) -> dict[str, bytes]:
    """The members named in `limits`, none longer than its limit; every other member is passed over."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if member.name not in limits:
                    continue
                found[member.name] = _read(archive, member, limits[member.name], path)
                if len(found) == len(limits):
                    break
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is a damaged archive ({error or type(error).__name__}): get it again") from None
    if missing := sorted(limits.keys() - found):
        raise ValueError(f"{path} lacks {missing[0]}: it is another archive, get the right one")
    return found


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo, limit: int, path: Path) -> bytes:
    file = archive.extractfile(member) if member.isreg() else None  # a link could stand for another member
    if file is None or member.size > limit:
        raise ValueError(f"{path}: {member.name} is no file of at most {limit:,} bytes: get the right archive")
    return file.read()
