"""Limits are exact: bit for bit, not nearly."""

import pytest
import torch

import letsam
from letsam import L2, LearnedRadius, SharpnessAware
from small import BASES, METHODS, assert_equal, batch, create, make_model, radius, train

WITH_CONSTANT_RADIUS = [m for m in METHODS if m not in ("erm", "le-sam") and not m.startswith(("lets-", "auto-"))]
# limits of methods that are SAM: name -> options
SAM_LIMITS = {
    "rst": {"p": 1.0},
    "gsam": {"alpha": 0.0},
    "gnp": {"alpha": 1.0, "rho": 0.05},
    "looksam": {"k": 1},
    "esam": {"beta": 1.0, "keep": 1.0},
    "fsam": {"sigma": 0.0},
    "ae-sam": {"lambda1": -1e9, "lambda2": -1e9},
    "lets-sam": {"lr": 0.0},
    "auto-sam": {"kappa": 0.0, "initial": 0.05},
}


def trained_by_base_alone(base, steps=8):
    model = make_model()
    optimizer = BASES[base](model.parameters())
    for t in range(steps):
        x, y = batch(2 * t)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("base", BASES)
def test_erm_is_the_base(base):
    model = make_model()
    assert_equal(train(model, create("erm", model, base), 8), trained_by_base_alone(base))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("method", [m for m in WITH_CONSTANT_RADIUS if m not in ("esam", "looksam", "ae-looksam")])
def test_radius_zero_is_the_base(method, base):
    # GSAM: g⊥ is rounding noise at ρ = 0, so its α has to be 0; Mix at ½ is exact in binary
    options = {"gsam": {"alpha": 0.0}, "gnp": {"alpha": 0.5}}.get(method, {})
    model = make_model()
    assert_equal(train(model, create(method, model, base, rho=0.0, **options), 8), trained_by_base_alone(base))


def test_esam_at_radius_zero_and_all_samples_is_the_base():
    model = make_model()
    assert_equal(train(model, create("esam", model, rho=0.0, keep=1.0), 8), trained_by_base_alone("momentum"))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("method", SAM_LIMITS)
def test_limit_is_sam(method, base):
    sam, limit = make_model(), make_model()
    train(sam, create("sam", sam, base), 8)
    opt = create(method, limit, base, **SAM_LIMITS[method])
    assert_equal(train(limit, opt, 8), sam)
    assert radius(opt) == 0.05


@pytest.mark.parametrize("method", ["rst", "ae-sam"])
def test_never_perturbing_is_the_base(method):
    options = {"rst": {"p": 0.0}, "ae-sam": {"lambda1": 1e9, "lambda2": 1e9}}[method]
    model = make_model()
    assert_equal(train(model, create(method, model, **options), 8), trained_by_base_alone("momentum"))


def test_asam_with_a_large_offset_is_sam_scaled():
    # T = ξ for ξ ≫ |θ|: v = ξ·g/‖g‖
    model, scaled = make_model(dtype=torch.float64), make_model(dtype=torch.float64)
    train(model, create("sam", model, rho=0.05), 5)
    train(scaled, create("asam", scaled, rho=0.05 / 1e9, xi=1e9), 5)
    for a, b in zip(model.parameters(), scaled.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def test_learning_leaves_dropout_and_the_global_random_state_alone():
    """With lr 0 the extra passes change nothing: not even what later dropout layers draw."""
    sam, lets = make_model(dropout=0.5), make_model(dropout=0.5)
    torch.manual_seed(3)
    train(sam, create("sam", sam), 6)
    after = torch.rand(3)
    torch.manual_seed(3)
    train(lets, create("lets-sam", lets, lr=0.0), 6)
    assert_equal(lets, sam)
    assert torch.equal(torch.rand(3), after)


def test_axes_compose_freely():
    """LETS + ASAM + RST + GSAM, with no special code, equals the parts chosen by hand."""
    by_hand, by_name = make_model(), make_model()
    options = {"initial": 0.5, "lr": 1e-2, "decay": 0.99997}
    axes = {
        "perturbation": letsam.Adaptive(),
        "policy": letsam.Bernoulli(0.5),
        "combiner": letsam.SurrogateGap(0.3),
        "radius": LearnedRadius(**options),
    }
    opt = SharpnessAware(BASES["momentum"](by_hand.parameters()), model=by_hand, **axes)
    train(by_hand, opt, 8)
    named = create("lets-asam", by_name, lr=1e-2, policy=axes["policy"], combiner=axes["combiner"])
    train(by_name, named, 8)
    assert_equal(by_hand, by_name)
    assert radius(opt) == radius(named) != 0.5


def test_defaults_of_the_class_are_sam():
    model, sam = make_model(), make_model()
    opt = SharpnessAware(BASES["momentum"](model.parameters()), model=model, perturbation=L2(), radius=0.05)
    assert_equal(train(model, opt, 4), train(sam, create("sam", sam), 4))
