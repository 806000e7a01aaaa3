"""Weights that are not finite have no score: not that of the class or the word that happens to come first."""

import json
import math

import pytest
import torch

from letsam.experiments.data.glue import GLUE
from letsam.experiments.loop import Run
from letsam.experiments.models import TRANSLATORS
from letsam.experiments.recipe import Training
from letsam.experiments.record import finite
from letsam.experiments.reproduce import Cell, record, score
from small_glue import save_bert, small_sets
from small_text import SHAPE, copy_pairs


def broken(training, sets):
    """An epoch with weights that are all nan."""
    run = Run(training, *sets, "cpu")
    with torch.no_grad():
        for weights in run.model.parameters():
            weights.fill_(math.nan)
    run.epoch()
    return run


@pytest.mark.parametrize("name", ["mrpc", "stsb", "mnli"])
def test_sentences(tmp_path, name):
    pytest.importorskip("transformers")
    training = Training(data=name, model=save_bert(tmp_path / "bert"), epochs=1, batch=4, precision="float32")
    run = broken(training, small_sets(tmp_path, name))
    assert all(math.isnan(run.rows[-1][metric]) for metric in ("test_loss", *GLUE[name].metrics))
    assert math.isnan(score(record(run)))


def test_translations(monkeypatch):
    pytest.importorskip("sacrebleu")
    monkeypatch.setitem(TRANSLATORS, "small", SHAPE)
    run = broken(
        Training(data="multi30k", model="small", epochs=1, batch=256, base="adamw", precision="float32"),
        copy_pairs((120, 20, 10)),
    )
    assert all(math.isnan(run.rows[-1][metric]) for metric in ("test_loss", "bleu", "tokenised_bleu"))
    assert math.isnan(score(json.loads(json.dumps(finite(record(run))))))  # as it comes back from its file


def test_a_table_says_so():
    cell = Cell("sam", "mrpc", (90.0, math.nan, 91.0), (90.5, 0.1))
    assert cell.text == "not finite: 1 of 3"
    assert cell.difference == "–"
