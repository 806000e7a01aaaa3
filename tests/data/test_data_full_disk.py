"""A disk that fills up, for real: a small tmpfs where the system allows one, and a limit on the size of files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from small_sets import archive_of, cifar_files, content, small, write_files
from web import serving

from letsam.experiments.data.cifar import CIFAR10

CHILD = """
import json, resource, sys
from pathlib import Path
how, size, folder, url, digest, source = sys.argv[1:]
from letsam.cli import main
from letsam.experiments.data import command
from letsam.experiments.data.cifar import CIFAR10
from small_sets import small
command.CIFARS["cifar10"] = small(CIFAR10, url, digest)
if how == "file size":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
code = main(["data", "cifar10", "--folder", folder, *(["--source", source] if source else [])])
left = {str(p.relative_to(folder)): p.stat().st_size for p in Path(folder).rglob("*") if p.is_file()}
print(json.dumps([code, left]))
"""


def tmpfs_works() -> bool:
    try:
        command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=4k letsam /tmp"]
        return subprocess.run(command, capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


no_tmpfs = pytest.mark.skipif(not tmpfs_works(), reason="this system lets no user mount a tmpfs")
LIMITS = ["file size", pytest.param("tmpfs", marks=no_tmpfs)]


def run(how: str, size: int, folder: Path, url: str, digest: str, source: str) -> tuple[int, dict[str, int], str]:
    folder.mkdir()
    command = [sys.executable, "-c", CHILD, how, str(size), str(folder), url, digest, source]
    if how == "tmpfs":
        mount = f'mount -t tmpfs -o size={size} letsam "$0" && exec "$@"'
        command = ["unshare", "-rm", "sh", "-c", mount, str(folder), *command]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    code, left = json.loads(done.stdout.splitlines()[-1])
    return code, left, done.stderr


@pytest.mark.parametrize("how", LIMITS)
def test_while_a_set_is_stored(how: str, tmp_path: Path) -> None:
    source = write_files(tmp_path / "bins", cifar_files(small(CIFAR10), content(10)))
    code, left, said = run(how, 40_960, tmp_path / "disk", "http://127.0.0.1:9/x", "0", str(source))
    assert code == 1
    assert said.count("\n") == 1
    assert "no space left" in said
    assert "--folder" in said
    assert set(left) <= {".lock"}


@pytest.mark.parametrize("how", LIMITS)
def test_while_an_archive_comes(how: str, tmp_path: Path) -> None:
    cifar, path = archive_of(CIFAR10, content(10), tmp_path / "a.tar.gz")
    with serving(path.read_bytes()) as server:
        url = f"{server.address}/a.tar.gz"
        code, left, said = run(how, 40_960, tmp_path / "disk", url, cifar.archive.digest, "")
    assert code == 1
    assert "no space left" in said
    assert "goes on where it stopped" in said
    assert 0 < left["a.tar.gz.part"] <= 40_960
    assert set(left) <= {".lock", "a.tar.gz.part"}
