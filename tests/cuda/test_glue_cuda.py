"""Fine-tuning on a GPU: the passes of BERT, DeBERTa and MPNet are captured, and train as the eager ones do."""

import pytest
import torch

from letsam.capture import graphs_of
from letsam.experiments.loop import Run
from letsam.experiments.recipe import Training
from small_glue import save_bert, save_deberta, save_mpnet, small_sets

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
pytest.importorskip("transformers")


@pytest.mark.parametrize("save", [save_bert, save_deberta, save_mpnet])
@pytest.mark.parametrize("method", ["sam", "lets-asam"])
def test_captured_passes_of_a_checkpoint(tmp_path, save, method):
    training = Training(
        data="mrpc",
        model=save(tmp_path / "checkpoint"),
        method=method,
        epochs=2,
        batch=4,
        base="adam",
        lr=1e-3,
        weight_decay=0.0,
        clip=1.0,
        dropout=0.0,
        precision="float32",
        compile=False,
    )
    runs = [Run(training, *small_sets(tmp_path, "mrpc"), "cuda") for _ in range(2)]
    runs[1].task.capture = False
    for run in runs:
        for module in run.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
    losses = [[run.epoch()["train_loss"] for _ in range(2)] for run in runs]
    assert not graphs_of(runs[0].model).refused
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
