"""What each pass does and does not touch: closure calls, BatchNorm statistics, random state, memory."""

import gc
import math

import pytest
import torch
from torch import nn

import letsam
from small import METHODS, assert_equal, batch, closures, create, make_model, train, weights


def counting(closure):
    def run():
        run.calls += 1
        return closure()

    run.calls = 0
    return run


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("esam", "lets-esam")])
def test_closure_calls_are_the_declared_passes(method):
    model = make_model()
    made, steps = 0, 20
    opt = create(method, model, **({"total_steps": 60} if "ae-" in method else {}))
    for t in range(steps):
        closure, val_closure = map(counting, closures(model, t))
        opt.step(closure, val_closure if opt.needs_validation else None)
        assert opt.last.passes == closure.calls + val_closure.calls
        made += opt.last.passes
    declared = letsam.describe(method).passes
    if "rst" in method or "ae-" in method or method == "auto-looksam":
        # The share of perturbed steps is random, depends on the data, or is too small for the tenth to come.
        perturbed = opt.param_groups[0]["sam_perturbed"]
        assert 0 < perturbed < steps
        extra = {"lets-": 2 * perturbed, "auto-": math.ceil(perturbed / 10)}.get(method[:5], 0)
        assert made == steps + perturbed + extra
    else:
        assert made / steps == pytest.approx(declared)


def test_esam_calls_the_closure_once_and_selects_once():
    model = make_model()
    opt = create("esam", model)
    closure, _ = closures(model, 0)
    sizes = []
    model.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    opt.step(closure)
    assert sizes == [16, 16, 8]
    assert opt.last.passes == letsam.describe("esam").passes == 2


@pytest.mark.parametrize("every", [2, 5])
def test_learning_every_k_steps_costs_one_pass_in_k(every):
    model = make_model()
    opt = create("auto-sam", model, every=every)
    passes = []
    for t in range(10):
        closure, val_closure = closures(model, t)
        opt.step(closure, val_closure if t % every == 0 else None)
        passes.append(opt.last.passes)
    assert passes == [3 if t % every == 0 else 2 for t in range(10)]


@pytest.mark.parametrize("method", METHODS)
def test_batchnorm_sees_the_clean_passes_alone(method):
    model, clean = make_model(), make_model()
    opt = create(method, model)
    for t in range(6):
        clean.load_state_dict(
            {k: v for k, v in model.state_dict().items() if "running" not in k and "num" not in k}, strict=False
        )
        with torch.no_grad():
            clean(batch(2 * t)[0])
        train(model, opt, 1, first=t)
        statistics = {k: v for k, v in weights(clean).items() if "running" in k or "num" in k}
        assert statistics["1.num_batches_tracked"] == t + 1
        assert_equal(statistics, model)


def test_batchnorm_is_found_through_the_closure_too():
    model, other = make_model(), make_model()
    train(model, create("sam", model), 3)
    opt = letsam.create("sam", torch.optim.SGD(other.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3))
    assert_equal(train(other, opt, 3), model)


def test_cumulative_batchnorm_and_layers_of_ones_own():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("running_mean", torch.zeros(3))

        def forward(self, x):
            if self.training:
                self.running_mean += x.detach().mean(0)
            return x - self.running_mean

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), Own(), nn.BatchNorm1d(3, momentum=None), nn.Linear(3, 2))
    opt = letsam.create("sam", torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
    expected = model[0](x).detach().mean(0)
    opt.step(letsam.closure(model, nn.functional.cross_entropy, (x, y)))
    assert torch.equal(model[1].running_mean, expected)
    assert model[2].num_batches_tracked == 1


@pytest.mark.parametrize("replay", [True, False])
def test_dropout_masks_are_the_same_in_both_passes_on_request(replay):
    model = nn.Sequential(nn.Dropout(0.5), make_model())
    opt = create("sam", model, replay_rng=replay)
    masks = []
    model[0].register_forward_hook(lambda module, inputs, output: masks.append(output == 0))
    torch.manual_seed(0)
    train(model, opt, 2)
    assert torch.equal(masks[0], masks[1]) == torch.equal(masks[2], masks[3]) == replay
    assert not torch.equal(masks[0], masks[2])


def own_gradients(model):
    """Let every pass leave its gradients in one buffer, over those of the pass before: as DDP does, and a graph."""
    params = [p for p in model.parameters() if p.requires_grad]
    buffer = torch.zeros(sum(p.numel() for p in params) + 1)
    end = 0
    for p in params:
        view = buffer[end : (end := end + p.numel())].view_as(p)
        p.register_post_accumulate_grad_hook(lambda p, view=view: setattr(p, "grad", view.copy_(p.grad)))
    return model


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_extra_memory_is_what_describe_says(method, owned):
    """Tensors as large as the one big parameter that are alive inside a pass, beside it and its gradient."""
    gc.freeze()  # what other tests left is not looked at
    size = 12_347
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, size, bias=False), nn.Linear(size, 1, bias=False))
    model[1].weight.requires_grad_(False)
    if owned:
        own_gradients(model)
    opt = create(method, model)
    most = 0

    def loss_fn(output, target):
        nonlocal most
        objects = [x for x in gc.get_objects() if type(x) in (torch.Tensor, nn.Parameter)]
        alive = {x.data_ptr() for x in objects if x.numel() == size}
        base = 1 + 1 + 1 + owned  # both weights, the momentum buffer, the memory of the gradient if it stays
        most = max(most, len(alive) - base)
        return (output.squeeze(1) - target) ** 2

    for t in range(12):
        x = torch.randn(4, 1, generator=torch.Generator().manual_seed(t))
        closure, val_closure = (letsam.closure(model, loss_fn, (x * s, x.squeeze(1))) for s in (1.0, 2.0))
        opt.step(closure, val_closure if opt.needs_validation else None)
    gc.unfreeze()
    assert most == letsam.describe(method).memory


class Strided(nn.Module):
    """Statistics of every pixel, laid out channels-last: they cannot be seen as one row of numbers."""

    def __init__(self):
        super().__init__()
        mean = torch.zeros(1, 4, 4, 4).to(memory_format=torch.channels_last)
        self.register_buffer("running_mean", mean)

    def forward(self, x):
        if self.training:
            self.running_mean.lerp_(x.detach().mean(0, keepdim=True), 0.1)
        return x - x.mean(0, keepdim=True)


def test_statistics_in_any_layout_move_on_the_clean_pass_alone():
    means = []
    for method in ("erm", "sam"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), Strided(), nn.Flatten(), nn.Linear(64, 5))
        train(model, create(method, model, torch.optim.SGD(model.parameters(), lr=0.0)), 3)
        means.append(model[1].running_mean)
    assert not means[0].is_contiguous()
    assert torch.equal(*means)
    assert means[0].abs().sum() > 0


@pytest.mark.parametrize("method", METHODS)
def test_gradients_may_lie_in_memory_that_the_passes_own(method):
    fresh, owned = make_model(), own_gradients(make_model())
    train(fresh, create(method, fresh), 25)
    train(owned, create(method, owned), 25)
    assert_equal(owned, fresh)


@pytest.mark.parametrize("method", ["lets-sam", "lets-gsam", "lets-gnp", "lets-looksam"])
def test_so_may_those_of_the_passes_of_a_central_difference(method):
    """The exact estimator makes two more passes of a plain function before the combiner gets its turn."""
    fresh, owned = make_model(), own_gradients(make_model())
    for model in (fresh, owned):
        opt = create(method, model, estimator="exact", rho=0.5)
        for t in range(5):
            closure, val_closure = closures(model, t)
            opt.step(lambda: closure(), lambda: val_closure())  # noqa: B023
    assert_equal(owned, fresh)
