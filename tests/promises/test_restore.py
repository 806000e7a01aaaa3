"""The weights come back bit for bit, in every precision, also when a closure raises."""

import pytest
import torch

from letsam import RandomWalkRadius
from small import METHODS, assert_equal, closures, create, make_model, train, weights


class Stop(Exception):
    pass


def raising(closure, at):
    """A plain function that raises on its `at`-th call, after a forward and backward pass."""
    calls = 0

    def run():
        nonlocal calls
        calls += 1
        loss = closure()
        if calls == at:
            raise Stop
        return loss

    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", METHODS)
def test_lr_zero_moves_nothing(method, dtype):
    model = make_model(dtype=dtype, norm=False)
    before = weights(model)
    opt = create(method, model, torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9))
    train(model, opt, 5)
    assert_equal(before, model)
    assert opt.param_groups[0]["sam_skipped"] == 0


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("esam", "lets-esam")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_closure_that_raises_in_any_pass(method, dtype):
    for at in (1, 2, 3):
        model = make_model(dtype=dtype)
        opt = create(method, model)
        train(model, opt, 1)
        before = weights(model)
        closure, _ = closures(model, 7)
        try:
            opt.backward(raising(closure, at))
        except Stop:
            assert at <= 2
        else:
            assert at > opt.last.passes
            continue
        assert_equal(before, model)  # BatchNorm statistics included
        train(model, opt, 1)  # and training goes on


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize(
    ("method", "options"), [("ae-sam", {"lambda2": -5.0}), ("sam", {"radius": RandomWalkRadius()}), ("le-sam", {})]
)
def test_a_step_that_is_made_again_counts_once(method, options, at):
    """AE-SAM's statistics and a radius that walks move with the clean gradient, before the perturbed pass."""
    model, twin = make_model(), make_model()
    opt, other = create(method, model, **options), create(method, twin, **options)
    train(twin, other, 4)
    train(model, opt, 3)
    closure, _ = closures(model, 3)
    with pytest.raises(Stop):
        opt.step(raising(closure, at))
    train(model, opt, 1, first=3)
    assert_equal(model, twin)
    numbers, others = ({k: v for k, v in o.param_groups[0].items() if k.startswith("sam_")} for o in (opt, other))
    assert numbers == others


def test_esam_raising_inside_the_selection():
    model = make_model()
    opt = create("esam", model)
    before = weights(model)
    closure, _ = closures(model, 0)
    forward, calls = model.forward, 0

    def third_time_raises(x):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Stop
        return forward(x)

    model.forward = third_time_raises
    with pytest.raises(Stop):
        opt.step(closure)
    assert_equal(before, model)


@pytest.mark.parametrize("method", ["lets-sam", "auto-sam"])
def test_raising_at_the_upper_level_keeps_the_step_and_the_radius(method):
    model, twin = make_model(), make_model()
    opt, other = create(method, model), create(method, twin)
    closure, val_closure = closures(model, 0)
    with pytest.raises(Stop):
        opt.step(closure, raising(val_closure, 1))
    twin_closure, _ = closures(twin, 0)
    other.backward(twin_closure)
    other.base.step()
    assert_equal(model, twin)
    assert opt.param_groups[0]["sam_rho"] == other.param_groups[0]["sam_rho"]


def test_storage_never_moves():
    """Flat parameters, captured graphs and views depend on it."""
    model = make_model()
    places = [p.data_ptr() for p in model.parameters()]
    for method in ("sam", "asam", "looksam", "lets-asam", "auto-sam"):
        train(model, create(method, model), 2)
    assert places == [p.data_ptr() for p in model.parameters()]
