"""`--record PATH` writes the outcome: PYTHONPATH=src python -m pytest tests/cuda --record results/cuda.json"""

import shlex
import time
from pathlib import Path

import torch

from letsam.experiments.record import environment, write_json

_begin = time.time()


def pytest_addoption(parser):
    parser.addoption("--record", type=Path, help="write counts, failures, versions and the device to this file")


def pytest_terminal_summary(terminalreporter, config):
    path = config.getoption("record", default=None)  # only known when this folder is what was asked for
    if path is None:
        return
    found = {name: terminalreporter.stats.get(name, []) for name in ("passed", "skipped", "failed", "error")}
    known, cuda = environment(), torch.cuda.is_available()
    arguments = [str(a) for a in config.invocation_params.args]
    write_json(
        path,
        {
            "command": shlex.join(["PYTHONPATH=src", "python", "-m", "pytest", *arguments]),
            "passed": len(found["passed"]),
            "skipped": len(found["skipped"]),
            "failed": len(found["failed"]) + len(found["error"]),
            "failures": [report.nodeid for report in (*found["failed"], *found["error"])],
            "device": torch.cuda.get_device_name() if cuda else "cpu",
            "seconds": round(time.time() - _begin, 1),
            **{key: known[key] for key in ("torch", "python", "revision")},
        },
    )
