"""A file from the web: with progress, resumed where it stopped, checked, and in place whole or not at all.

What has arrived lies in `<file>.part`. HTTP's Range header (RFC 9110, section 14) asks for the rest of it; a server
that does not know the header answers with 200 and the whole file, and the part starts anew.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .disk import writing
from .hashes import file_hash

CHUNK, TIMEOUT = 1 << 18, 30
Progress = Callable[[int, int | None], None]


class Unreachable(RuntimeError):
    """There is no way to the source from here; another source may do."""


class Cut(RuntimeError):
    """The connection ended before the file did."""


@dataclass(frozen=True)
class Remote:
    """A file on the web, its published hash and a bound on its size."""

    url: str
    algorithm: str
    digest: str
    limit: int

    @property
    def file(self) -> str:
        """Its name."""
        return Path(urlsplit(self.url).path).name

    @property
    def host(self) -> str:
        """The machine that has it."""
        return urlsplit(self.url).hostname or self.url


def download(remote: Remote, folder: Path, progress: Progress) -> Path:
    """The file in the folder, fetched if it is not there; its hash is right."""
    path, part = folder / remote.file, folder / f"{remote.file}.part"
    if path.exists():
        if (found := file_hash(path, remote.algorithm)) != remote.digest:
            raise ValueError(f"{path} is damaged ({remote.algorithm} {found}, not {remote.digest}): remove it")
        return path
    while True:
        resumed = part.exists()
        _fill(remote, part, progress)
        found = file_hash(part, remote.algorithm)
        if found == remote.digest:
            with writing(path):
                part.replace(path)
            return path
        part.unlink()
        if not resumed:  # else the older part may be to blame: once more from the start
            raise RuntimeError(
                f"what {remote.host} sent is not the published file ({remote.algorithm} {found}, not {remote.digest}): "
                "try again later, or give the file with --source"
            )


def _fill(remote: Remote, part: Path, progress: Progress) -> None:
    """Ask for the rest until all is there, as long as each connection brings something."""
    while True:
        before = _size(part)
        try:
            _stream(remote, part, progress)
            return
        except Cut as cut:
            if _size(part) <= before:
                raise RuntimeError(f"{cut}; run the same command again to go on from there") from None


def _stream(remote: Remote, part: Path, progress: Progress) -> None:
    """One connection: append what it brings to the part."""
    have = _size(part)
    try:
        response = _open(remote, have)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing comes after what we have; the hash decides
            return
        raise Unreachable(f"{remote.host} answered {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        if have:
            raise Cut(f"no connection to {remote.host} ({_reason(error)}), {have / 1e6:.1f} MB are here") from None
        raise Unreachable(f"no connection to {remote.host} ({_reason(error)})") from None
    with response:
        have = have if response.headers.get("Content-Range", "").startswith(f"bytes {have}-") else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        with writing(part):
            file = part.open("ab" if have else "wb", buffering=0)  # a full disk is told by the write, not by the close
        with file:
            _copy(remote, response, file, have, total, progress)


def _open(remote: Remote, have: int) -> Any:
    headers = {"User-Agent": "letsam"} | ({"Range": f"bytes={have}-"} if have else {})
    return urllib.request.urlopen(urllib.request.Request(remote.url, headers=headers), timeout=TIMEOUT)


def _copy(remote: Remote, response: Any, file: Any, have: int, total: int | None, progress: Progress) -> None:
    part = Path(file.name)
    while chunk := _read(remote, response, have):
        have += len(chunk)
        if have > remote.limit:
            raise RuntimeError(f"{remote.host} sends more than {remote.limit:,} bytes, which is not {remote.file}")
        rest = memoryview(chunk)
        with writing(part):
            while rest:
                rest = rest[file.write(rest) :]
        progress(have, total)
    if total is not None and have < total:
        raise Cut(f"{remote.host} hung up after {have / 1e6:.1f} of {total / 1e6:.1f} MB")


def _read(remote: Remote, response: Any, have: int) -> bytes:
    try:
        return bytes(response.read(CHUNK))
    except (OSError, http.client.HTTPException) as error:
        raise Cut(f"{remote.host} hung up after {have / 1e6:.1f} MB ({_reason(error)})") from None


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error)) or type(error).__name__
