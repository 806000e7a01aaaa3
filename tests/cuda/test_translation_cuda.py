"""Translation on a GPU: captured passes train as the eager ones do, batches of every length included."""

from functools import partial

import pytest
import torch

from letsam.capture import graphs_of
from letsam.experiments.loop import Run
from letsam.experiments.models import TRANSLATORS
from small_text import SHAPE, copy_pairs, translation

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
pytest.importorskip("sacrebleu")


@pytest.fixture(autouse=True)
def small_model(monkeypatch):
    monkeypatch.setitem(TRANSLATORS, "small", SHAPE)


@pytest.fixture(scope="module")
def pairs():
    return copy_pairs((300, 40, 20), longest=30, device="cuda")


settings = partial(translation, epochs=3, batch=512)


@pytest.mark.parametrize("method", ["erm", "sam", "lets-asam", "auto-sam"])
def test_captured_passes_of_a_translator(pairs, method):
    validation = "held-out" if method == "auto-sam" else "training"
    runs = [Run(settings(method=method, validation=validation), *pairs, "cuda") for _ in range(2)]
    runs[1].task.capture = False
    assert len({runs[0].source.batch(i, 0)[0].shape for i in range(runs[0].steps)}) > 1
    rows = [[run.epoch() for _ in range(3)] for run in runs]
    assert graphs_of(runs[0].model).captures > 0
    assert not graphs_of(runs[0].model).refused
    for key in ("train_loss", "test_loss", "rho"):
        captured, eager = ([row[key] for row in part if row[key] is not None] for part in rows)
        assert captured == pytest.approx(eager, rel=1e-3)
    assert rows[0][-1]["bleu"] == pytest.approx(rows[1][-1]["bleu"], abs=1.0)  # a near tie may be another word


def test_bfloat16_with_dropout_learns(pairs, monkeypatch):
    monkeypatch.setitem(TRANSLATORS, "small", SHAPE | {"dropout": 0.1})
    run = Run(settings(method="sam", rho=0.05, epochs=6, precision="bfloat16"), *pairs, "cuda")
    rows = [run.epoch() for _ in range(6)]
    assert graphs_of(run.model).captures > 0
    assert rows[-1]["train_loss"] < 0.9 * rows[0]["train_loss"]
    assert rows[-1]["skipped"] == 0
