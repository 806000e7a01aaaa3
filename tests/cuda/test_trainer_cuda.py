"""Trainer on a GPU, where accelerate's mixed precision and its scaler are real, and AdamW is fused."""

import pytest
import torch

import letsam

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
pytest.importorskip("transformers")

from tiny import bert, logged, texts, trainer  # noqa: E402  it imports transformers

STEPS, SIZE = 8, 4
DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
CLOSE = {"fp32": 1e-4, "bf16": 3e-2, "fp16": 1e-2}


def trained(folder, method, precision, steps=STEPS, scale=None):
    settings = {
        "use_cpu": False,
        "optim": "adamw_torch_fused",
        "per_device_train_batch_size": SIZE,
        "max_steps": steps,
        "train_sampling_strategy": "sequential",
        "lr_scheduler_type": "constant",  # a step that is skipped is none of a schedule
        **({} if precision == "fp32" else {precision: True}),
    }
    made = trainer(folder, method, bert(), train=texts(steps * SIZE), arguments_=settings)
    if scale is not None:
        made.accelerator.scaler = torch.amp.GradScaler("cuda", init_scale=scale)
    made.train()
    return made


def by_hand(method, precision):
    """The losses of letsam.create around a fused AdamW, with a scaler of its own."""
    model = bert().cuda().train()
    base = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0, fused=True)
    opt = letsam.create(method, base, model=model)
    scaler = torch.amp.GradScaler("cuda") if precision == "fp16" else None
    data, losses = texts(STEPS * SIZE), []
    for t in range(STEPS):
        rows = data[t * SIZE : (t + 1) * SIZE]
        batch = {key: torch.stack([row[key] for row in rows]).cuda() for key in ("input_ids", "labels")}
        closure = letsam.closure(model, None, batch, autocast=DTYPES[precision], scaler=scaler)
        losses.append(float(opt.step(closure)))
        if scaler is not None:
            scaler.update()
    return losses


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("method", ["erm", "sam", "asam"])
def test_the_losses_are_those_of_a_loop_by_hand(tmp_path, method, precision):
    made = trained(tmp_path, method, precision)
    assert next(made.model.parameters()).is_cuda
    assert logged(made, "loss") == pytest.approx(by_hand(method, precision), rel=CLOSE[precision])


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("method", ["sam", "auto-sam"])
def test_mixed_precision_learns(tmp_path, method, precision):
    made = trained(tmp_path, method, precision, steps=60)
    losses = logged(made, "loss")
    assert sum(losses[-20:]) < 0.9 * sum(losses[:20])
    assert all(p.isfinite().all() for p in made.model.parameters())
    assert (made.accelerator.scaler is not None) == (precision == "fp16")


def test_an_overflow_of_fp16_moves_nothing_and_the_scaler_backs_off(tmp_path):
    made = trained(tmp_path, "sam", "fp16", steps=40, scale=2.0**40)
    skipped = logged(made, "skipped_steps")[-1]
    assert 0 < skipped < 40
    assert made.accelerator.scaler.get_scale() < 2.0**40
    assert all(p.isfinite().all() for p in made.model.parameters())
