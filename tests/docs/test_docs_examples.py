"""Every example runs as it is, in a process of its own, and does what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name, folder):
    command = [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(word, output):
    return [float(x) for x in re.findall(rf"{word} ([\d.e+-]+)", output)]


def plain_loop(output):
    assert numbers("test accuracy", output)[-1] > 80
    assert numbers("radius", output)[-1] > 0.1  # from 0.005: wrong labels ask for more


def mixed_precision(output):
    loss, skipped = numbers("loss", output), numbers("skipped", output)
    assert loss[-1] < loss[0]
    assert skipped[0] > 0  # the scale starts too large
    assert skipped[-1] == skipped[0]


def own_axes(output):
    assert re.findall(r"perturbed (\w+)", output) == ["False", "True", "True", "True"]
    assert numbers("loss", output)[-1] < numbers("loss", output)[0]


def three_verbs(output):
    assert "resumed equals uninterrupted: True" in output


def fine_tuning(output):
    assert numbers("test accuracy", output)[-1] > 0.7
    assert "'perturbation_norm'" in output  # in Trainer's own log
    first, last = numbers("radius", output)[-2:]
    assert last > 1.5 * first
    assert "held out {'samples': 32, 'of': 320, 'seed': 42}" in output


CHECKS = (plain_loop, mixed_precision, own_axes, three_verbs, fine_tuning)


def test_every_example_is_checked_and_short():
    files = sorted(EXAMPLES.glob("*.py"))
    assert {file.stem for file in files} == {check.__name__ for check in CHECKS}
    assert all(len(file.read_text(encoding="utf-8").splitlines()) < 60 for file in files)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_example(check, tmp_path):
    check(run(check.__name__, tmp_path))
