"""benchmarks/arithmetic.py: without a GPU one line; with stand-ins for the device the whole record."""

import subprocess
import sys

import pytest
import torch
from scripts import FOLDER, load

from letsam import tensors
from letsam.space import Space

SMALL = "decoder-125m:width=8,depth=1,heads=2,vocabulary=16,context=8"


def test_without_a_gpu_one_line(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU, and what is told is that there is none")
    command = [sys.executable, FOLDER / "arithmetic.py", "--out", tmp_path / "a.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "arithmetic: there is no CUDA device here, and this measures one\n"
    assert list(tmp_path.iterdir()) == []


def test_it_needs_nothing_but_torch(tmp_path):
    blocked = "import sys; sys.modules.update(dict.fromkeys(('tyro', 'rich', 'matplotlib', 'numpy', 'plotly')))"
    code = f"{blocked}; sys.path.insert(0, {str(FOLDER)!r}); import arithmetic"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_kernels_and_foreach_both_run(monkeypatch, capsys):
    kernels = pytest.importorskip("letsam.kernels", reason="Triton has no build for this system", exc_type=ImportError)
    arithmetic = load("arithmetic")
    used = []

    def timed(work, repeats):
        """Runs the work once, and remembers whether a kernel did any of it."""
        before = len(tables)
        work()
        used.append(len(tables) > before)
        return {"ms": 2.0, "host_ms": 1.0}

    tables = []
    monkeypatch.setattr(tensors, "kernel_table", lambda *lists: tables.append(1) or kernels.table(*lists))
    monkeypatch.setattr(Space, "has_kernels", True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    values = {"DEVICE": "cpu", "COPIED": 2**20, "STEP_MODEL": SMALL, "KERNEL_MODELS": ("small-cnn:width=2", SMALL)}
    for name, value in {**values, "timed": timed}.items():
        monkeypatch.setattr(arithmetic, name, value)
    record = arithmetic.measure(3)

    steps, alone = record["steps"], record["kernels"]
    assert [(row["what"], row["version"]) for row in steps[:3]] == [
        ("sam", "triton"),
        ("sam", "foreach"),
        ("asam", "triton"),
    ]
    assert used == [False, *[True, False] * (4 + 2 * 6)]  # the copy, then in turn
    size = steps[0]["bytes"] // (4 * 8)
    assert {row["what"]: row["bytes"] / (4 * size) for row in steps} == {
        "sam": 8,
        "asam": 11,
        "gsam": 15,
        "auto-sam": 21,
    }
    assert [row["bytes"] / (4 * size) for row in alone if row["model"] == SMALL] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 3, 3]
    assert record["copy"]["gb_per_s"] == pytest.approx(2 * 2**20 / 2e-3 / 1e9)
    assert steps[0]["share"] == pytest.approx(steps[0]["gb_per_s"] / record["copy"]["gb_per_s"])
    assert "a card" in capsys.readouterr().out
