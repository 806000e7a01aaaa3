"""The promises that only a GPU can show. `results/cuda.json` keeps the last run's outcome (conftest.py)."""

import pytest
import torch
from torch import nn

import letsam
from small import LOSS, METHODS, assert_equal, batch, create, learns, make_model, radius, weights

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def train(model, opt, steps, first=0, batches=None, **options):
    dtype = next(model.parameters()).dtype
    for t in range(first, first + steps):
        pair = batches[t] if batches else [on_gpu(2 * t + i, dtype) for i in range(2)]
        closure, val_closure = (letsam.closure(model, LOSS, b, **options) for b in pair)
        opt.step(closure, val_closure if opt.needs_validation else None)
    return model


def on_gpu(index, dtype):
    return tuple(x.cuda() for x in batch(index, dtype=dtype))


@pytest.mark.parametrize("method", [m for m in METHODS if "rsam" not in m])  # its noise is drawn on the device
def test_same_numbers_as_on_the_cpu(method):
    models = make_model(dtype=torch.float64), make_model(dtype=torch.float64).cuda()
    # Not AdamW: it would blow up the rounding noise that is the gradient of a bias in front of BatchNorm.
    optimizers = [create(method, m, "momentum", **learns(method, every=2)) for m in models]
    for t in range(6):
        for m, o in zip(models, optimizers, strict=True):
            device = next(m.parameters()).device
            pair = (tuple(x.to(device) for x in batch(2 * t + i, dtype=torch.float64)) for i in range(2))
            closure, val_closure = (letsam.closure(m, LOSS, b) for b in pair)
            o.step(closure, val_closure if o.needs_validation else None)
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p, q.cpu(), rtol=1e-8, atol=1e-11)
    torch.testing.assert_close(radius(optimizers[0]), radius(optimizers[1]).cpu(), rtol=1e-8, atol=0)


@pytest.mark.parametrize("base", ["sgd", "adamw"])
@pytest.mark.parametrize("method", [m for m in METHODS if "ae-" not in m])  # AE-SAM has to read its decision
def test_no_step_waits_for_the_device(method, base):
    model = make_model().cuda()
    params = model.parameters()
    fused = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[base](params, lr=0.01, fused=True)
    if base == "sgd":
        fused.param_groups[0]["momentum"] = 0.9
    opt = create(method, model, fused, **learns(method))
    batches = [[on_gpu(2 * t + i, torch.float32) for i in range(2)] for t in range(8)]
    train(model, opt, 2, batches=batches)
    torch.cuda.set_sync_debug_mode("error")
    try:
        train(model, opt, 6, first=2, batches=batches)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert opt.last.loss > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", ["sam", "asam", "gsam", "looksam", "esam", "lets-asam", "auto-sam"])
def test_lr_zero_moves_nothing(method, dtype):
    model = make_model(dtype=dtype, norm=False).cuda()
    before = weights(model)
    train(model, create(method, model, torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)), 5)
    assert_equal(before, model)


@pytest.mark.parametrize("method", ["sam", "gsam", "ae-sam", "lets-sam", "auto-asam"])
def test_float16_with_a_real_scaler(method):
    """An absurd first scale overflows, is backed off from, and training goes on, all the while finite."""
    model = make_model().cuda()
    opt = create(method, model)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40)
    for t in range(40):
        train(model, opt, 1, first=t, autocast=torch.float16, scaler=scaler)
        scaler.update()
    skipped = int(opt.param_groups[0]["sam_skipped"])
    assert 0 < skipped < 40
    assert scaler.get_scale() < 2.0**40
    assert all(x.isfinite().all() for x in model.state_dict().values())


@pytest.mark.parametrize("base", ["sgd", "adamw"])
def test_a_poisoned_step_moves_nothing(base):
    model = make_model().cuda()
    make = {"sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True)}.get(
        base, lambda p: torch.optim.AdamW(p, lr=0.01, fused=True)
    )
    opt = create("looksam", model, make(model.parameters()), k=1)
    train(model, opt, 2)
    before, x = weights(model), on_gpu(0, torch.float32)
    opt.step(letsam.closure(model, LOSS, (x[0] * torch.nan, x[1])))
    assert opt.last.skipped
    assert_equal(before, model)
    train(model, opt, 2)
    assert all(p.isfinite().all() for p in model.parameters())


def test_dropout_masks_are_replayed_on_the_device():
    model = nn.Sequential(nn.Dropout(0.5), make_model()).cuda()
    masks = []
    model[0].register_forward_hook(lambda module, inputs, output: masks.append(output == 0))
    train(model, create("sam", model, replay_rng=True), 2)
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(masks[2], masks[3])
    assert not torch.equal(masks[0], masks[2])
