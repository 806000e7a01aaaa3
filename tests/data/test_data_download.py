"""Downloads from a real server: whole, cut and resumed, refused, wrong."""

import hashlib
import io
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from web import Server, serving

from letsam.experiments.data.download import Remote, Unreachable, download
from letsam.experiments.data.progress import progress

CONTENT = random.Random(0).randbytes(1_500_000)
DIGEST = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(CONTENT) as running:
        yield running


def remote(server: Server, digest: str = DIGEST, limit: int = 1 << 21) -> Remote:
    return Remote(f"{server.address}/set.tar.gz", "md5", digest, limit)


def quiet(done: int, total: int | None) -> None:
    pass


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("length", [True, False])
def test_a_file_and_its_progress(length: bool, server: Server, tmp_path: Path) -> None:
    server.length = length
    seen: list[tuple[int, int | None]] = []
    path = download(remote(server), tmp_path, lambda *at: seen.append(at))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT) if length else None)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert names(tmp_path) == ["set.tar.gz"]
    assert download(remote(server), tmp_path, quiet) == path
    assert server.requests == [None]  # the second call asked for nothing


def test_a_cut_connection_is_taken_up_again(server: Server, tmp_path: Path) -> None:
    server.cuts = [600_000, 300_000]
    assert download(remote(server), tmp_path, quiet).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=600000-", "bytes=900000-"]


def test_what_has_come_stays_for_the_next_call(server: Server, tmp_path: Path) -> None:
    server.cuts = [600_000, 0]
    with pytest.raises(RuntimeError, match=r"hung up after 0\.6 of 1\.5 MB; run the same command again"):
        download(remote(server), tmp_path, quiet)
    assert names(tmp_path) == ["set.tar.gz.part"]
    assert (tmp_path / "set.tar.gz.part").read_bytes() == CONTENT[:600_000]
    assert download(remote(server), tmp_path, quiet).read_bytes() == CONTENT
    assert server.requests[-1] == "bytes=600000-"
    assert names(tmp_path) == ["set.tar.gz"]


def test_a_server_that_is_gone_when_the_rest_is_asked_for(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz.part").write_bytes(CONTENT[:100_000])
    gone = Remote(f"http://127.0.0.1:{closed_port()}/set.tar.gz", "md5", DIGEST, 1 << 21)
    with pytest.raises(RuntimeError, match=r"0\.1 MB are here; run the same command again"):
        download(gone, tmp_path, quiet)
    assert (tmp_path / "set.tar.gz.part").read_bytes() == CONTENT[:100_000]


def test_a_server_without_ranges_starts_anew(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "set.tar.gz.part").write_bytes(CONTENT[:100_000])
    assert download(remote(server), tmp_path, quiet).read_bytes() == CONTENT


@pytest.mark.parametrize("old", [b"x" * 1000, b"x" * len(CONTENT), CONTENT + b"more"], ids=["short", "long", "longer"])
def test_a_part_that_does_not_fit_is_dropped(old: bytes, server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz.part").write_bytes(old)
    assert download(remote(server), tmp_path, quiet).read_bytes() == CONTENT
    assert server.requests == [f"bytes={len(old)}-", None]


def test_a_part_that_is_complete_already(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz.part").write_bytes(CONTENT)
    assert download(remote(server), tmp_path, quiet).read_bytes() == CONTENT


def test_a_wrong_hash_leaves_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=f"not the published file .md5 {DIGEST}, not 0000"):
        download(remote(server, digest="0" * 32), tmp_path, quiet)
    assert names(tmp_path) == []


def test_a_damaged_file_that_is_there_is_named_and_kept(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz").write_bytes(b"mine")
    with pytest.raises(ValueError, match=r"set\.tar\.gz is damaged .*: remove it"):
        download(remote(server), tmp_path, quiet)
    assert (tmp_path / "set.tar.gz").read_bytes() == b"mine"


def test_no_more_than_the_limit_is_written(server: Server, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="more than 1,000,000 bytes"):
        download(remote(server, limit=1_000_000), tmp_path, quiet)
    assert (tmp_path / "set.tar.gz.part").stat().st_size <= 1_000_000


@pytest.mark.parametrize("status", [403, 404, 503])
def test_a_server_that_refuses(status: int, server: Server, tmp_path: Path) -> None:
    server.status = status
    with pytest.raises(Unreachable, match=f"127.0.0.1 answered {status}"):
        download(remote(server), tmp_path, quiet)
    assert names(tmp_path) == []


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_no_network(tmp_path: Path) -> None:
    for host in (f"127.0.0.1:{closed_port()}", "no-such-host.invalid"):
        with pytest.raises(Unreachable, match="no connection to"):
            download(Remote(f"http://{host}/set.tar.gz", "md5", DIGEST, 1 << 21), tmp_path, quiet)
    assert names(tmp_path) == []


def test_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, file = io.StringIO(), io.StringIO()
    with progress(Console(file=screen, force_terminal=True, width=120), "set.tar.gz") as show:
        show(500_000, 1_000_000)
    assert "set.tar.gz" in screen.getvalue()
    now = iter([0.0, 5.0, 11.0, 11.0, 12.0, 30.0, 30.0])
    monkeypatch.setattr("letsam.experiments.data.progress.time.monotonic", lambda: next(now))
    with progress(Console(file=file, width=120), "set.tar.gz") as show:
        for done, total in ((1_000_000, 9_000_000), (2_000_000, 9_000_000), (3_000_000, 9_000_000), (4_000_000, None)):
            show(done, total)
    assert file.getvalue() == "set.tar.gz: 2 of 9 MB\nset.tar.gz: 4 MB\n"
