"""It is a real torch optimizer: any base, groups, schedulers, hooks, frozen, unused and tied parameters."""

import pytest
import torch
from torch import nn

import letsam
from small import LOSS, METHODS, assert_equal, batch, closures, create, make_model, radius, train, weights

EVERY_BASE = {
    "SGD": {"lr": 0.05},
    "Adam": {"lr": 1e-3},
    "AdamW": {"lr": 1e-3},
    "RMSprop": {"lr": 1e-3},
    "Adafactor": {"lr": 1e-2},
    "Adagrad": {"lr": 1e-2},
    "NAdam": {"lr": 1e-3},
    "Muon": {"lr": 1e-2},
}


def loss_of(model, index=0):
    x, y = batch(index)
    with torch.no_grad():
        return LOSS(model(x), y).mean().item()


@pytest.mark.parametrize("method", ["sam", "looksam", "lets-asam", "auto-sam"])
@pytest.mark.parametrize("base", EVERY_BASE)
def test_any_base(base, method):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 16, bias=False), nn.Tanh(), nn.Linear(16, 5, bias=False))
    optimizer = getattr(torch.optim, base)(model.parameters(), **EVERY_BASE[base])  # Muon takes matrices alone
    opt = letsam.create(method, optimizer, model=model)
    before = loss_of(model)
    for _ in range(25):
        closure, val_closure = closures(model, 0)
        opt.step(closure, val_closure if opt.needs_validation else None)
    assert loss_of(model) < before
    assert opt.param_groups[0]["sam_skipped"] == 0


def test_the_three_verbs_are_the_step():
    a, b = make_model(), make_model()
    whole, parts = create("lets-gsam", a, lr=0.1), create("lets-gsam", b, lr=0.1)
    train(a, whole, 5)
    for t in range(5):
        closure, val_closure = closures(b, t)
        before = weights(b)
        parts.backward(closure)
        assert_equal({k: v for k, v in before.items() if "weight" in k or "bias" in k}, b)
        parts.base.step()
        parts.learn(closure, val_closure)
    assert_equal(a, b)
    assert radius(whole) == radius(parts) != 0.05


def test_plain_functions_do_as_well():
    a, b = make_model(), make_model()
    train(a, create("lets-asam", a), 4)
    opt = create("lets-asam", b)
    for t in range(4):

        def function(i, t=t):
            x, y = batch(2 * t + i)
            opt.zero_grad()
            loss = LOSS(b(x), y).mean()
            loss.backward()
            return loss

        opt.step(lambda: function(0), lambda: function(1))
    assert_equal(a, b)


def test_a_closure_that_forgets_to_clear_does_not_add_up_the_passes():
    a, b = make_model(), make_model()
    train(a, create("sam", a), 3)
    opt = create("sam", b)
    for t in range(3):
        x, y = batch(2 * t)

        def closure(x=x, y=y):
            loss = LOSS(b(x), y).mean()
            loss.backward()
            return loss.item()  # a float will do

        opt.step(closure)
    assert_equal(a, b)


@pytest.mark.parametrize("on_wrapper", [True, False])
@pytest.mark.parametrize("method", ["sam", "auto-sam"])
@pytest.mark.filterwarnings("error")
def test_schedulers_on_the_wrapper_or_on_the_base(method, on_wrapper):
    model = make_model()
    opt = create(method, model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt if on_wrapper else opt.base, 6)
    rates = []
    for t in range(6):
        train(model, opt, 1, first=t)
        rates.append(opt.base.param_groups[0]["lr"])
        scheduler.step()
    assert rates[0] == 0.05
    assert rates == sorted(rates, reverse=True)
    assert opt.param_groups[0]["lr"] == pytest.approx(0.0)


def test_groups_and_their_own_radius():
    """ε of a group is scaled by its rho; v is common to all groups. A group at 0 stays where it is."""
    model = make_model(norm=False)
    first, last = list(model[0].parameters()), list(model[5].parameters())
    base = torch.optim.SGD([{"params": first, "rho": 0.2}, {"params": last, "rho": 0.0, "lr": 0.01}], lr=0.1)
    opt = letsam.create("sam", base, model=model, rho=0.05)
    seen = []

    def loss_fn(output, target):
        seen.append([p.detach().clone() for p in model.parameters()])
        return LOSS(output, target)

    x, y = batch(0)
    norm = torch.cat([g.flatten() for g in torch.autograd.grad(LOSS(model(x), y).mean(), list(model.parameters()))])
    opt.step(letsam.closure(model, loss_fn, (x, y)))
    moved = [b - a for a, b in zip(*seen, strict=True)]
    length = torch.cat([m.flatten() for m in moved[:2]]).norm()
    share = norm[: moved[0].numel() + moved[1].numel()].norm() / norm.norm()
    torch.testing.assert_close(length, 0.2 * share, rtol=1e-4, atol=0)
    assert not moved[2].any()
    assert not moved[3].any()


def test_groups_added_later():
    model = make_model()
    base = torch.optim.SGD(model[0].parameters(), lr=0.1)
    opt = letsam.create("auto-sam", base, model=model)
    opt.add_param_group({"params": list(model[5].parameters()), "lr": 0.01, "rho": 0.1})
    before = weights(model)
    train(model, opt, 3)
    assert not torch.equal(before["5.weight"], model[5].weight)


def test_convolutions_of_a_group_added_later_count_as_such():
    """Without a model too: ASAM's filter norms do not depend on when a group came."""
    models = [make_model(norm=False), make_model(norm=False)]
    for late, model in enumerate(models):
        groups = [{"params": list(model[i].parameters())} for i in (5, 0)]
        opt = letsam.create("asam", torch.optim.SGD(groups[:1] if late else groups, lr=0.1))
        if late:
            opt.add_param_group(groups[1])
        for t in range(3):
            closure, _ = closures(model, t)
            opt.step(lambda closure=closure: closure())
    assert_equal(*models)


@pytest.mark.parametrize("method", METHODS)
def test_frozen_and_unused_and_tied_parameters(method):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.unused = nn.Linear(36, 36), nn.Linear(36, 36), nn.Linear(2, 2)
            self.head = nn.Linear(36, 5)
            self.b.weight = self.a.weight
            self.head.weight.requires_grad_(False)

        def forward(self, x):
            return self.head(torch.tanh(self.b(torch.tanh(self.a(x.flatten(1))))))

    torch.manual_seed(0)
    model = Net()
    opt = create(method, model)
    before = weights(model)
    train(model, opt, 6)
    for name in ("unused.weight", "unused.bias", "head.weight"):
        assert torch.equal(before[name], weights(model)[name])
    assert not torch.equal(before["a.weight"], model.a.weight)
    assert model.b.weight is model.a.weight


@pytest.mark.parametrize("method", ["sam", "gsam", "looksam", "auto-fsam", "lets-sam"])
def test_a_parameter_that_only_some_passes_use(method):
    """Stochastic depth, experts: nothing stays perturbed, nothing breaks."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.odd, self.even = nn.Linear(36, 5), nn.Linear(5, 5), nn.Linear(5, 5)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return (self.odd if self.calls % 2 else self.even)(torch.tanh(self.stem(x.flatten(1))))

    torch.manual_seed(0)
    model = Net()
    opt = create(method, model, torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0))
    before = weights(model)
    train(model, opt, 7)
    assert_equal(before, model)


def test_step_without_a_closure_steps_the_base():
    model, plain = make_model(), make_model()
    opt = create("looksam", model)
    other = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    for m, o in ((model, opt), (plain, other)):
        x, y = batch(0)
        LOSS(m(x), y).mean().backward()
        o.step()
    assert_equal(model, plain)


def test_hooks_and_reports():
    model = make_model()
    opt = create("auto-sam", model, every=1)
    calls = []
    opt.register_step_pre_hook(lambda *_: calls.append("before"))
    opt.register_step_post_hook(lambda *_: calls.append("after"))
    train(model, opt, 2)
    assert calls == ["before", "after"] * 2
    assert isinstance(opt, torch.optim.Optimizer)
    last = opt.last.as_dict()
    assert last["passes"] == 3
    assert last["perturbed"]
    assert not last["skipped"]
    assert last["perturbed_loss"] > last["loss"] > 0
    assert last["radius"] == float(radius(opt))
    assert "radius=" in repr(opt.last)
    assert "LearnedRadius" in repr(opt)


def test_large_learning_rate_tensor():
    """lr may be a tensor, as torch allows."""
    a, b = make_model(), make_model()
    train(a, create("auto-sam", a, torch.optim.SGD(a.parameters(), lr=0.05)), 3)
    train(b, create("auto-sam", b, torch.optim.SGD(b.parameters(), lr=torch.tensor(0.05), foreach=False)), 3)
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize("method", ["sam", "asam", "esam", "rsam", "gsam", "fsam", "auto-sam"])
def test_the_reported_perturbation_is_the_one_that_was_made(method):
    model = make_model()
    opt = create(method, model)
    train(model, opt, 2)
    closure, val_closure = closures(model, 2)
    at = []

    def watch(module, inputs):
        at.append(nn.utils.parameters_to_vector(model.parameters()).detach().double())

    model.register_forward_pre_hook(watch)
    opt.step(closure, val_closure if opt.needs_validation else None)
    assert opt.last.perturbation_norm == pytest.approx(float((at[1] - at[0]).norm()), rel=1e-4)


def test_a_step_without_perturbation_reports_none():
    model = make_model()
    opt = create("erm", model)
    train(model, opt, 1)
    assert opt.last.perturbation_norm is None


def test_a_first_group_without_parameters():
    a, b = make_model(), make_model()
    groups = [{"params": []}, {"params": b.parameters()}]
    train(a, create("auto-sam", a, torch.optim.SGD(a.parameters(), lr=0.05)), 3)
    train(b, create("auto-sam", b, torch.optim.SGD(groups, lr=0.05)), 3)
    assert_equal(a, b)
