"""What is not supported is refused in one line when the trainer is made."""

import os
import sys

import pytest
import torch
from accelerate.utils import DistributedType
from transformers import Trainer

import letsam
from letsam.integrations.transformers import SharpnessAwareTrainer
from letsam.integrations.transformers.refusals import check_base
from tiny import arguments, bert, texts


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(texts(8))


def make(folder, method="sam", n_gpu=None, **more):
    settings = {key: more.pop(key) for key in ("optim", "max_steps", "torch_compile") if key in more}
    args = arguments(folder, **settings)
    if n_gpu:
        args._n_gpu = n_gpu
    return SharpnessAwareTrainer(bert(), args, **({"train_dataset": texts()} | more), method=method)


def wrapped():
    return letsam.create("sam", torch.optim.SGD(bert().parameters(), lr=0.1))


CASES = {
    "method": ({"method": "smm"}, "did you mean 'sam'"),
    "option": ({"method": "sam", "method_options": {"roh": 1}}, "has no option 'roh'"),
    "esam": ({"method": "esam"}, "needs per-sample losses"),
    "DataParallel": ({"n_gpu": 2}, "DataParallel is not supported"),
    "compile": ({"torch_compile": True}, "set torch_compile=False"),
    "lomo": ({"optim": "lomo"}, "does not step on one gradient"),
    "layerwise": ({"optim": "galore_adamw_layerwise"}, "does not step on one gradient"),
    "schedule-free": ({"optim": "schedule_free_adamw"}, "does not step on one gradient"),
    "wrapped already": ({"optimizers": (wrapped(), None)}, "pass its .base"),
    "stream": ({"method": "auto-sam", "train_dataset": Stream(), "max_steps": 2}, "pass radius_dataset="),
    "radius data a stream": ({"method": "auto-sam", "radius_dataset": Stream()}, "radius_dataset is a stream"),
    "no radius data": ({"method": "auto-sam", "radius_dataset": []}, "or empty"),
    "radius data for nothing": ({"radius_dataset": texts(4)}, "sam learns no radius"),
    "held out for nothing": ({"held_out": 0.2}, "use auto-sam"),
    "both": ({"method": "auto-sam", "held_out": 0.2, "radius_dataset": texts(4)}, "not both"),
    "nothing held out": ({"method": "auto-sam", "held_out": 0.0}, "empty part"),
}


@pytest.mark.parametrize("case", CASES)
def test_refused_at_construction(case, tmp_path, monkeypatch):
    monkeypatch.setattr("os.environ", os.environ.copy())  # torch_compile=True writes into it
    given, message = CASES[case]
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        make(tmp_path, **given)
    assert "\n" not in str(caught.value)


ENGINES = {
    "DeepSpeed": ({"is_deepspeed_enabled": True}, "DeepSpeed is not supported"),
    "FSDP": ({"is_fsdp_enabled": True}, "FSDP is not supported"),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_that_own_the_step(engine, tmp_path, monkeypatch):
    """Neither runs on one CPU process: what accelerate would say is said here."""
    flags, message = ENGINES[engine]
    original = Trainer.create_accelerator_and_postprocess

    def pretend(self):
        original(self)
        vars(self).update(flags)

    monkeypatch.setattr(Trainer, "create_accelerator_and_postprocess", pretend)
    with pytest.raises(ValueError, match=message):
        make(tmp_path)


def test_other_engines(tmp_path, monkeypatch):
    monkeypatch.setattr("accelerate.Accelerator.distributed_type", DistributedType.MEGATRON_LM)
    with pytest.raises(ValueError, match="MEGATRON_LM is not supported"):
        make(tmp_path)


class OwnLoader(SharpnessAwareTrainer):
    def get_train_dataloader(self):
        return torch.utils.data.DataLoader(texts(8), batch_size=2)


def test_a_loader_of_ones_own_leaves_nothing_to_hold_out(tmp_path):
    made = OwnLoader(bert(), arguments(tmp_path), method="auto-sam")
    with pytest.raises(ValueError, match="needs data that is not trained on"):
        made.train()


def test_a_base_that_swaps_its_weights():
    class ScheduleFree(torch.optim.SGD):
        def train(self):
            """Swap."""

    with pytest.raises(ValueError, match="ScheduleFree has weights of its own"):
        check_base(ScheduleFree(bert().parameters(), lr=0.1))


def test_without_transformers(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("letsam.integrations")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="pip install 'letsam"):
        __import__("letsam.integrations.transformers")
