"""A pass that is not finite moves nothing and is counted."""

import pytest
import torch
from torch import nn

import letsam
from small import METHODS, assert_equal, batch, closures, create, learns, make_model, radius, train, weights


class Poison(nn.Module):
    """Passes its input on, and spoils the forward value or the gradient of the calls it is told to."""

    def __init__(self):
        super().__init__()
        self.calls, self.at, self.value, self.where = 0, None, float("nan"), "loss"

    def forward(self, x):
        self.calls += 1
        if self.calls != self.at or not x.requires_grad:
            return x
        if self.where == "loss":
            return x * self.value
        x.register_hook(lambda g: g * self.value)
        return x


def poisoned(seed=0):
    model = make_model(seed)
    model.insert(0, nn.Conv2d(1, 1, 1))
    model.insert(1, Poison())
    return model


def state(opt):
    return [{k: torch.as_tensor(v).clone() for k, v in s.items() if v is not None} for s in opt.base.state.values()]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("method", METHODS)
def test_lower_level(method, where, value):
    for at in (1, 2):
        model = poisoned()
        opt = create(method, model, "adamw")
        train(model, opt, 3)
        opt.param_groups[0]["sam_step"] = 0  # LookSAM: a perturbed step
        poison, before, memory, rho = model[1], weights(model), state(opt), radius(opt).clone()
        # ESAM's perturbed pass is the third forward: the second one, without gradients, only selects.
        poison.calls, poison.at, poison.where, poison.value = 0, at if at == 1 or opt.keep == 1 else 3, where, value
        closure, val_closure = closures(model, 5)
        opt.step(closure, val_closure if opt.needs_validation else None)
        if at > opt.last.passes or (at == 2 and not opt.last.perturbed):
            assert not opt.last.skipped
            continue
        assert opt.last.skipped
        assert opt.param_groups[0]["sam_skipped"] == 1
        parameters = {k: v for k, v in before.items() if "running" not in k and "num" not in k}
        assert_equal(parameters, model)
        assert all(torch.equal(a[k], b[k]) for a, b in zip(memory, state(opt), strict=True) for k in a)
        if method != "le-sam" or at == 1:  # LE-SAM's radius is a function of this step's clean gradient
            assert torch.equal(radius(opt), rho)
        assert radius(opt).isfinite()
        assert all(b.isfinite().all() for b in model.buffers())
        if at == 1:
            assert_equal(before, model)  # a poisoned clean pass does not reach BatchNorm either
        poison.at = None
        train(model, opt, 2, first=6)
        assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("method", ["lets-sam", "lets-asam", "lets-gsam", "auto-sam", "auto-looksam"])
def test_upper_level_leaves_the_radius(method, where):
    for at in (3, 4):
        model = poisoned()
        opt = create(method, model, **learns(method))
        train(model, opt, 1)
        opt.param_groups[0]["sam_step"] = 0
        scalars = {k: v for k, v in opt.param_groups[0].items() if k.startswith(("sam_nu", "sam_rho"))}
        model[1].calls, model[1].at, model[1].where = 0, at, where
        closure, val_closure = closures(model, 5)
        opt.step(closure, val_closure)
        assert opt.last.passes >= 3
        if at > opt.last.passes:
            continue
        assert all(opt.param_groups[0][k] == v for k, v in scalars.items())
        assert all(b.isfinite().all() for b in model.buffers())
        assert opt.param_groups[0]["sam_radius_skipped"] == 1


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_fused_bases_skip_without_being_asked_by_the_host(kind, fused):
    model = poisoned()
    make = {"sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=fused)}.get(
        kind, lambda p: torch.optim.AdamW(p, lr=0.01, fused=fused)
    )
    opt = create("sam", model, make(model.parameters()))
    for first in (True, False):
        before, memory = weights(model), state(opt)
        model[1].calls, model[1].at = 0, 2
        closure, _ = closures(model, 0)
        opt.step(closure)
        assert opt.last.skipped
        parameters = {k: v for k, v in before.items() if "running" not in k and "num" not in k}
        assert_equal(parameters, model)
        if not first:
            assert all(torch.equal(a[k], b[k]) for a, b in zip(memory, state(opt), strict=True) for k in a)
        model[1].at = None
        train(model, opt, 1)
    assert opt.param_groups[0]["sam_skipped"] == 2


def test_grad_scaler_backs_off_and_grows():
    model = make_model(norm=False)
    opt = create("gsam", model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=2)
    x, y = batch(0)
    opt.step(letsam.closure(model, nn.functional.cross_entropy, (x * torch.inf, y), scaler=scaler))
    scaler.update()
    assert opt.last.skipped
    assert scaler.get_scale() == 2.0**19
    for _ in range(2):
        opt.step(letsam.closure(model, nn.functional.cross_entropy, (x, y), scaler=scaler))
        scaler.update()
    assert scaler.get_scale() == 2.0**20


def test_forgetting_scaler_update_is_an_error():
    model = make_model()
    opt = create("sam", model)
    scaler = torch.amp.GradScaler("cpu")
    train(model, opt, 1, scaler=scaler)
    with pytest.raises(RuntimeError, match="already been called"):
        train(model, opt, 1, scaler=scaler)


@pytest.mark.parametrize("method", ["sam", "ae-sam", "gsam", "lets-sam", "auto-sam"])
def test_the_loss_scale_changes_nothing(method):
    """Powers of two are exact: the same bits as without a scaler, hyper-gradient and AE-SAM's norm included."""
    plain, scaled = make_model(), make_model()
    a, b = create(method, plain), create(method, scaled)
    train(plain, a, 4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for t in range(4):
        train(scaled, b, 1, first=t, scaler=scaler)
        scaler.update()
    assert_equal(plain, scaled)
    assert radius(a) == radius(b)
