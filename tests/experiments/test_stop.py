"""Ctrl-C and SIGTERM in the middle of an epoch, for real: the run ends as if it had never stopped."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import pytest

from letsam.experiments.checkpoint import load_checkpoint
from letsam.experiments.recipe import Training

CHILD = """
import json, sys, torch
from pathlib import Path
torch.set_num_threads(1)
from letsam.experiments.data.images import load
from letsam.experiments.loop import Run, train_run
from letsam.experiments.models import digest
from letsam.experiments.recipe import Training
from letsam.terminal import Stopped, stoppable
training = Training(**json.loads(sys.argv[1]))
def make():
    run = Run(training, load("digits"), load("digits", split="test"), "cpu")
    print("ready", flush=True)
    return run
try:
    with stoppable("go on"):
        run = train_run(make, Path(sys.argv[2]), lambda row: None, lambda text: None, every=3600.0)
except Stopped as stop:
    sys.exit(stop.code)
print(json.dumps([digest(run.model), run.rows]))
"""
TRAINING = Training(
    data="digits",
    model="small-cnn",
    method="auto-gsam",
    options={"every": 2},
    validation="held-out",
    back=0.25,
    ema=0.9,
    epochs=24,
    batch=5,
    lr=0.03,
    images=200,
    precision="float32",
)


def start(folder):
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", CHILD, json.dumps(asdict(TRAINING)), str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def result(process):
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    weights, rows = json.loads(out.splitlines()[-1])
    return weights, [{key: value for key, value in row.items() if not key.startswith("seconds")} for row in rows]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_in_the_middle_of_epochs_it_ends_with_the_same_bits(tmp_path, number, code):
    whole, moments, parts, before = result(start(tmp_path / "whole")), random.Random(0), 0, 0
    checkpoint = tmp_path / "stopped" / f"{TRAINING.identity}.safetensors"
    for _ in range(3):
        process = start(tmp_path / "stopped")
        time.sleep(moments.uniform(0.05, 0.3))
        os.kill(process.pid, number)
        _, error = process.communicate(timeout=120)
        assert (process.returncode, error) == (code, "letsam: stopped; go on\n")
        state = load_checkpoint(checkpoint)
        steps = len(state["rows"]) * 36 + (state["part"]["steps"] if state["part"] else 0)
        assert steps > before  # what was done is there
        parts, before = parts + bool(state["part"]), steps
    assert parts
    assert result(start(tmp_path / "stopped")) == whole


def test_a_second_ctrl_c_does_not_wait():
    child = """
import time
from letsam.terminal import held
with held() as stop:
    print("ready", flush=True)
    while not stop: time.sleep(0.01)
    print("once", flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in ("ready\n", "once\n"):
        assert process.stdout.readline() == line
        process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=10)[1]
