"""How ν moves, given the hyper-gradient: Adam, the cosine rule, bounds, and when."""

import copy
import math

import by_hand
import pytest
import torch

import letsam
import oracle

RHO, STEPS = 0.1, 12


def radius(opt):
    return opt.base.param_groups[0]["sam_rho"].item()


def make(name, base_name="momentum", **options):
    model = oracle.make_model()
    base = oracle.make_base(base_name, model)
    if name.startswith("auto-"):  # one step at a time, as far as it goes
        alone = {"initial": RHO, "bounds": (1e-5, 10.0), "shift": 0.0, "every": 1, "memory": 0.0, "gated": False}
        return model, letsam.create(name, base, model=model, **(alone | options))
    return model, letsam.create(name, base, model=model, rho=RHO, **options)


@pytest.mark.parametrize("decay", [1.0, 0.9])
@pytest.mark.parametrize("eps", [1e-8, 1e-3])
def test_adam_on_nu_is_torch_adam_with_exponential_decay(decay, eps):
    betas, lr = (0.8, 0.95), 0.03
    radius_axis = letsam.LearnedRadius(
        RHO,
        estimator="algorithm1",
        objective="squared-gap",
        length_free=False,
        rule="adam",
        lr=lr,
        betas=betas,
        eps=eps,
        decay=decay,
    )
    model = oracle.make_model()
    opt = letsam.create("sam", oracle.make_base("momentum", model), model=model, radius=radius_axis)
    nu = torch.tensor(math.log(RHO), dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([nu], lr=lr, betas=betas, eps=eps)
    schedule = torch.optim.lr_scheduler.ExponentialLR(adam, decay)
    for batches in oracle.make_data(STEPS):
        assert opt.step(*oracle.closures(model, batches)) == opt.last.loss
        assert opt.last.hyper_gradient != 0
        nu.grad = torch.tensor(opt.last.hyper_gradient, dtype=torch.float64)
        adam.step()
        schedule.step()
        assert radius(opt) == pytest.approx(nu.exp().item(), rel=1e-12, abs=0)
    assert radius(opt) != pytest.approx(RHO, rel=1e-6)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(("length_free", "shift"), [(False, 0.0), (True, 0.0), (True, 2 * RHO)])
def test_the_cosine_rule(length_free, shift, every):
    kappa, rho = 0.2, RHO
    model, opt = make("auto-sam", "sgd", kappa=kappa, length_free=length_free, shift=shift, every=every)
    for t, batches in enumerate(oracle.make_data(STEPS)):
        s = by_hand.take(model, opt.base, batches, rho)
        b = [x - y for x, y in zip(s.g_hat, s.g, strict=True)]
        if length_free:
            share = by_hand.dot(b, s.g_hat) / by_hand.dot(s.g_hat, s.g_hat)
            b = [x - share * y for x, y in zip(b, s.g_hat, strict=True)]
        J_b = [lr * x for lr, x in zip(s.lr, b, strict=True)]
        length = (by_hand.dot(s.g_vl, s.g_vl) * by_hand.dot(J_b, J_b)).sqrt()
        cosine = by_hand.dot(s.g_vl, J_b) / length
        opt.step(*oracle.closures(model, batches))
        if t % every == 0:
            rho = (rho + shift) * math.exp(kappa * every * cosine) - shift
        assert radius(opt) == pytest.approx(rho, rel=1e-10, abs=0)
        rho = radius(opt)
    assert abs(math.log(rho / RHO)) > 1e-3


@pytest.mark.parametrize("name", ["lets-sam", "auto-sam"])
@pytest.mark.parametrize("bounds", [(RHO, 10.0), (1e-6, RHO), (RHO, RHO)])
def test_bounds_hold_at_every_step(name, bounds):
    options = {"lr": 0.05} if name == "lets-sam" else {"kappa": 0.5}
    model, opt = make(name, bounds=bounds, **options)
    radii = []
    for batches in oracle.make_data(STEPS):
        opt.step(*oracle.closures(model, batches))
        radii.append(radius(opt))
    assert min(radii) >= bounds[0] * (1 - 1e-15)
    assert max(radii) <= bounds[1] * (1 + 1e-15)
    assert any(rho == pytest.approx(RHO, rel=1e-12) for rho in radii)


@pytest.mark.parametrize("name", ["lets-sam", "lets-rst", "lets-looksam", "auto-sam", "auto-rst"])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_the_radius_moves_on_every_kth_perturbed_step_alone(name, every):
    """And the two passes at θ_{t+1} are made on no other step."""
    model, opt = make(name, every=every, **({"lr": 0.05} if name.startswith("lets") else {}))
    perturbed, calls = 0, []

    def counting(closure):
        def run():
            calls.append(None)
            return closure()

        return run

    for batches in oracle.make_data(20):
        before = radius(opt)
        calls.clear()
        opt.step(*map(counting, oracle.closures(model, batches, plain=True)))
        due = opt.last.perturbed and perturbed % every == 0
        perturbed += opt.last.perturbed
        assert (radius(opt) != before) == due
        assert (opt.last.hyper_gradient is not None) == due
        upper_passes = (1 if name.startswith("auto") else 2) if due else 0
        assert len(calls) == opt.last.passes == 1 + opt.last.perturbed + upper_passes
    assert perturbed > every


@pytest.mark.parametrize("rho", [0.1, 0.05, 1 / 3, 7e-3])
@pytest.mark.parametrize("method", ["sam", "asam", "rst"])
def test_a_rate_of_zero_leaves_the_radius_bit_equal(method, rho):
    model = oracle.make_model()
    opt = letsam.create(f"lets-{method}", oracle.make_base("adamw", model), model=model, rho=rho, lr=0.0)
    for batches in oracle.make_data(6):
        opt.step(*oracle.closures(model, batches))
        assert radius(opt) == rho


@pytest.mark.parametrize("estimator", ["algorithm1", "appendix"])
def test_the_papers_estimators_carry_nothing_forward(estimator):
    with pytest.raises(ValueError, match=f"{estimator} is one step of the paper: use memory=0, or"):
        make("lets-sam", estimator=estimator, memory=0.9)


@pytest.mark.parametrize("option", [{"gated": True}, {"capped": True}, {"shift": 0.1}])
def test_only_the_cosine_is_gated_capped_or_shifted(option):
    with pytest.raises(ValueError, match=f"{next(iter(option))} is for the cosine: use rule='cosine' with it"):
        make("lets-sam", **option)


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_the_cap_stops_growth_and_growth_alone(memory):
    """At the cap itself, the perturbed loss as high as the held-out one, it may still grow."""
    _, opt = make("auto-sam", capped=True, memory=memory)
    group = opt.param_groups[0]

    def moved(cosine, perturbed, held_out=2.0):
        before = radius(opt)
        signal = {"cosine": cosine, "perturbed_loss": perturbed, "val_loss": held_out}
        opt.radius.update({name: torch.tensor(x) for name, x in signal.items()}, torch.tensor(True), group)
        return math.log(radius(opt) / before)

    kappa = opt.radius.kappa
    assert moved(0.1, 2.0) == pytest.approx(0.1 * kappa)
    assert moved(-0.1, 2.1) == pytest.approx(-0.1 * kappa)
    assert moved(0.1, 2.1) == 0.0
    assert (moved(0.1, 1.999) == 0.0) == bool(memory), "it is the means that are compared"


def test_what_the_cap_compares_is_resumed():
    data = oracle.make_data(STEPS)
    (model, opt), (other, resumed) = (make("auto-sam", capped=True, memory=0.9, kappa=2.0) for _ in range(2))
    for i, batches in enumerate(data):
        if i == STEPS // 2:
            other.load_state_dict(model.state_dict())
            resumed.load_state_dict(copy.deepcopy(opt.state_dict()))
        opt.step(*oracle.closures(model, batches))
        if i >= STEPS // 2:
            resumed.step(*oracle.closures(other, batches))
            assert radius(resumed) == radius(opt)
    assert opt.param_groups[0]["sam_perturbed_loss"] == resumed.param_groups[0]["sam_perturbed_loss"] > 0


@pytest.mark.parametrize("method", ["sam", "asam", "gnp"])
def test_auto_starts_at_a_tenth_of_the_usual_radius_which_is_its_shift(method):
    rho = letsam.describe(method).defaults["rho"][0]
    auto = {key: value for key, (value, _) in letsam.describe(f"auto-{method}").defaults.items()}
    assert (auto["initial"], auto["bounds"], auto["shift"]) == (rho / 10, (rho / 10, 200 * rho), rho)
