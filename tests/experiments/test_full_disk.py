"""A disk that fills up under runs, measures and figures, for real: a limit on the size of files."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from measured_runs import ENVIRONMENT, commands_in

from letsam.cli import main

CHILD = """
import resource, sys
import matplotlib.font_manager  # it keeps a list of fonts, which is none of our files
from letsam.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(main(sys.argv[2:]))
"""
REPRODUCE = ["reproduce", "small", "--seeds", "0", "--rows", "erm"]
MEASURE = ["measure", "small", "--seeds", "0", "--rows", "erm", "--points", "3", "--images", "50"]
FIGURES = ["figures", "convergence", "--out", "images", "--page", "page.html"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return commands_in(tmp_path_factory.mktemp("trained"), ["reproduce", "small", "--seeds", "0"], FIGURES)


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def files(place):
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file() and path.name != ".lock"}


def limited(size, command):
    """(exit code, what it complains about) with files of at most so many bytes."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(size), *command], env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stderr


def forget(place, *patterns):
    for path in (path for pattern in patterns for path in list(place.glob(pattern))):
        path.unlink()


@pytest.mark.parametrize(
    ("command", "missing", "size", "what"),
    [
        (REPRODUCE, ("results/reproduction/*-erm-*.json", "runs/*/*/*.safetensors"), 4096, ".safetensors"),
        (REPRODUCE, ("results/reproduction/*-erm-*.json",), 200, ".json"),
        (MEASURE, (), 20, "header.json"),
        (FIGURES, (), 1000, ".png"),
    ],
    ids=["checkpoint", "record", "rows", "figure"],
)
def test_one_line_and_nothing_half_written(place, command, missing, size, what):
    forget(place, *missing)
    before = files(place)
    code, said = limited(size, command)
    assert code == 1
    assert said.count("\n") == 1
    assert said.startswith("letsam: cannot write ")
    assert f"{what}: File too large; free some space, and run the same command again" in said
    assert files(place) == before
    assert main(command) == 0


def test_a_place_that_is_no_folder_is_one_line(place, capsys):
    Path("results/measures").write_text("a file")
    assert main(MEASURE) != 0
    assert capsys.readouterr().err.count("\n") == 1
