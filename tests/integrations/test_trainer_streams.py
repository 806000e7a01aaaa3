"""Streams: their samples have no numbers, and they may end inside an accumulation."""

import pytest
import torch
from torch import nn
from transformers import Trainer, set_seed

from letsam.integrations.transformers import SharpnessAwareTrainer
from tiny import assert_same, bert, logged, texts, trainer


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, n=8):
        self.n = n

    def __iter__(self):
        return iter(texts(self.n))


class Plain(nn.Module):
    """A model without loss kwargs: Trainer divides its loss by the number of micro-batches."""

    def __init__(self):
        super().__init__()
        set_seed(0)
        self.embed, self.head = nn.Embedding(40, 8), nn.Linear(48, 2)

    def forward(self, input_ids, labels=None):
        logits = self.head(self.embed(input_ids).flatten(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_a_stream_with_a_radius_dataset(tmp_path):
    free = {"every": 1, "gated": False, "bounds": (1e-5, 1.0)}
    more = {"radius_dataset": texts(9, seed=7), "method_options": free, "arguments_": {"max_steps": 3}}
    made = trainer(tmp_path, "auto-sam", train=Stream(), **more)
    made.train()
    assert made.held_out is None
    assert logged(made, "rho")[0] != logged(made, "rho")[-1]


@pytest.mark.parametrize("model", [Plain, bert])
def test_erm_is_the_plain_trainer_where_a_stream_ends_inside_an_accumulation(tmp_path, model):
    """Of five micro-batches an epoch, four make a step, and the fifth goes into the next one."""
    settings = {"gradient_accumulation_steps": 4, "max_steps": 4}
    made = []
    for kind in (Trainer, SharpnessAwareTrainer):
        made.append(trainer(tmp_path, "erm", model(), kind=kind, train=Stream(10), arguments_=settings))
        made[-1].train()
    assert_same(made[0].model, made[1].model)
