import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from letsam.experiments.checkpoint import load_checkpoint, save_checkpoint


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def test_everything_comes_back(tmp_path):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).to(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    opt.step()
    shared = torch.arange(4.0)
    state = {
        "model": model.state_dict(),
        "optimizer": opt.state_dict(),
        "rows": [{"epoch": 0, "rho": None, "loss": 0.1}],
        "twice": (shared, shared),
        "empty": {},
        "bf16": torch.tensor(1.5, dtype=torch.bfloat16),
        "rng": torch.get_rng_state(),
    }
    save_checkpoint(tmp_path / "c.safetensors", state)
    loaded = load_checkpoint(tmp_path / "c.safetensors")
    assert same({**state, "model": dict(state["model"])}, loaded)
    opt.load_state_dict(loaded["optimizer"])
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


def test_what_it_cannot_hold_is_told(tmp_path):
    with pytest.raises(TypeError, match="a checkpoint cannot hold a set"):
        save_checkpoint(tmp_path / "c.safetensors", {"x": {1}})
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path / "c.safetensors")


@pytest.mark.parametrize("damage", ["cut", "flip", "header", "empty", "foreign"])
def test_a_damaged_one_is_told_in_one_line(tmp_path, damage):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, {"x": torch.randn(1000)})
    content = path.read_bytes()
    if damage == "foreign":
        from safetensors.torch import save_file

        save_file({"x": torch.zeros(2)}, path)
    else:
        flipped = content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]
        damaged = {"cut": content[:-100], "flip": flipped, "header": b"\xff" * 8 + content[8:], "empty": b""}
        path.write_bytes(damaged[damage])
    with pytest.raises(ValueError, match=r"c.safetensors is not a whole checkpoint \(\w+\)"):
        load_checkpoint(path)


def test_a_process_killed_while_it_writes_leaves_a_whole_one(tmp_path):
    path = tmp_path / "c.safetensors"
    code = (
        "import sys, torch, itertools\n"
        "from pathlib import Path\n"
        "from letsam.experiments.checkpoint import save_checkpoint\n"
        "for i in itertools.count():\n"
        "    save_checkpoint(Path(sys.argv[1]), {'i': i, 'x': torch.full((500_000,), float(i))})\n"
    )
    for attempt in range(4):
        process = subprocess.Popen([sys.executable, "-c", code, str(path)])
        while not path.exists():
            time.sleep(0.01)
        time.sleep(0.05 + 0.03 * attempt)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        state = load_checkpoint(path)
        assert state["x"].unique().tolist() == [state["i"]]
