"""Two processes under DistributedDataParallel: one trajectory, that of one process with the whole batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from trainer_ranks import SETTINGS

from tiny import causal, sentences, trainer

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two-ranks")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [HERE / "trainer_ranks.py", folder, "asam", "auto-sam"]
    path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("method", ["asam", "auto-sam"])
def test_the_ranks_have_the_same_weights_and_radius(method, folder):
    a, b = (torch.load(folder / f"{method}-{rank}.pt") for rank in range(2))
    assert torch.equal(a["rho"], b["rho"])
    assert torch.equal(a["norm"], b["norm"])
    assert all(torch.equal(value, b["weights"][name]) for name, value in a["weights"].items())
    assert method == "asam" or float(a["rho"]) != pytest.approx(0.005)


def test_they_are_those_of_one_process_with_the_whole_batch(folder, tmp_path):
    model, settings = causal(), SETTINGS | {"per_device_train_batch_size": 4}
    trainer(tmp_path, "asam", model, train=sentences(16), arguments_=settings).train()
    theirs = torch.load(folder / "asam-0.pt")["weights"]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-4, atol=1e-5)
