"""The record of a run of tests/cuda, of a folder with a few tests of which some fail."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "cuda" / "conftest.py"
TESTS = """
import pytest

def test_fine():
    pass

def test_wrong():
    assert False

@pytest.fixture
def broken():
    raise RuntimeError

def test_cannot_begin(broken):
    pass

@pytest.mark.skip
def test_not_here():
    pass
"""


def test_what_was_found_is_written(tmp_path):
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", tmp_path, "--record", tmp_path / "out.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    record = json.loads((tmp_path / "out.json").read_text())
    assert done.returncode == 1
    assert (record["passed"], record["skipped"], record["failed"]) == (1, 1, 2)
    assert record["failures"] == ["test_some.py::test_wrong", "test_some.py::test_cannot_begin"]
    assert record["command"].startswith("PYTHONPATH=src python -m pytest -q ")
    assert {"device", "torch", "python", "revision", "seconds"} <= record.keys()
