"""Hyper-gradients of the optimizer against finite differences and formulas written out by hand."""

import copy
import itertools
import math

import by_hand
import pytest
import torch

import letsam
import oracle
from letsam.tensors import squared

RHO, WARM_UP = 0.2, 3
OBJECTIVES = ["squared-gap", "gap", "validation"]
METHODS = ["sam", "asam"]


def learner(method, base, model, rho=RHO, **options):
    """A learned radius that measures and does not move."""
    return letsam.create(f"lets-{method}", base, model=model, rho=rho, lr=0.0, **options)


def measured(opt, model, data, plain=False):
    opt.step(*oracle.closures(model, data, plain))
    return opt.last.hyper_gradient


@pytest.mark.parametrize("plain", [False, True], ids=["closure object", "plain function"])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("base_name", oracle.BASES)
@pytest.mark.parametrize("method", METHODS)
def test_exact_is_the_slope_of_the_upper_objective(method, base_name, objective, plain):
    model, data = oracle.make_model(), oracle.make_data(WARM_UP)
    base = oracle.make_base(base_name, model)
    opt = learner(method, base, model, estimator="exact", objective=objective)
    for batches in data:  # the first step, without moments, and the ones after it

        def upper(nu, batches=batches):
            step = by_hand.take(model, base, batches, RHO * math.exp(nu), adaptive=method == "asam")
            return by_hand.upper_objective(objective, step)

        slope = oracle.slope_at_zero(upper)
        assert measured(opt, model, batches, plain) == pytest.approx(slope, rel=1e-6, abs=0)


@pytest.mark.parametrize("plain", [False, True], ids=["closure object", "plain function"])
@pytest.mark.parametrize("base_name", ["sgd", "adamw"])
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("gsam", {}),
        ("gnp", {}),
        ("looksam", {}),
        ("rst", {"p": 1.0}),
        ("fsam", {}),
        ("rsam", {}),
        ("esam", {"keep": 1.0}),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_exact_is_the_slope_for_other_methods_too(method, options, base_name, plain):
    (batches,) = oracle.make_data(1)

    def upper(nu):
        model = oracle.make_model()
        opt = letsam.create(method, oracle.make_base(base_name, model), model=model, rho=RHO * math.exp(nu), **options)
        opt.step(oracle.closures(model, batches, plain)[0])
        return by_hand.gradient(model, batches[1])[0]

    model = oracle.make_model()
    base = oracle.make_base(base_name, model)
    opt = learner(method, base, model, estimator="exact", objective="validation", **options)
    assert measured(opt, model, batches, plain) == pytest.approx(oracle.slope_at_zero(upper), rel=1e-6, abs=0)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
        (torch.optim.Adam, {"lr": 5e-3, "eps": 1e-2, "weight_decay": 0.1}),
    ],
    ids=["sgd", "adam"],
)
def test_exact_for_a_base_that_maximizes(kind, options):
    (batches,) = oracle.make_data(1)

    def stepped(method, rho, **more):
        model = oracle.make_model()
        base = kind(model.parameters(), maximize=True, **options)
        opt = letsam.create(method, base, model=model, rho=rho, **more)
        opt.step(*oracle.closures(model, batches))
        return opt.last.hyper_gradient, by_hand.gradient(model, batches[1])[0]

    slope = oracle.slope_at_zero(lambda nu: stepped("sam", RHO * math.exp(nu))[1])
    learned, _ = stepped("lets-sam", RHO, lr=0.0, estimator="exact", objective="validation")
    assert learned == pytest.approx(slope, rel=1e-6, abs=0)


def test_amsgrad_counts_as_an_unknown_base():
    model = oracle.make_model()
    base = torch.optim.Adam(model.parameters(), lr=0.01, amsgrad=True)
    opt = learner("sam", base, model, estimator="finite-difference", objective="validation")
    (batches,) = oracle.make_data(1)
    other = oracle.make_model()
    step = by_hand.take(other, torch.optim.SGD(other.parameters(), lr=0.01), batches, RHO)
    found = measured(opt, model, batches)
    change = [x - y for x, y in zip(step.g_hat, step.g, strict=True)]
    g_vl = by_hand.gradient(model, batches[1])[1]
    assert found == pytest.approx(
        -0.01 * sum((x * y).sum().item() for x, y in zip(g_vl, change, strict=True)), rel=1e-9
    )


@pytest.mark.parametrize("plain", [False, True], ids=["closure object", "plain function"])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("estimator", ["algorithm1", "appendix"])
@pytest.mark.parametrize("base_name", ["sgd", "nesterov", "adamw"])
@pytest.mark.parametrize("method", METHODS)
def test_the_papers_estimators_are_as_printed(method, base_name, estimator, objective, plain):
    model, data = oracle.make_model(), oracle.make_data(WARM_UP)
    base = oracle.make_base(base_name, model)
    opt = learner(method, base, model, estimator=estimator, objective=objective)
    for batches in data:
        s = by_hand.take(model, base, batches, RHO, adaptive=method == "asam")
        a = by_hand.upper_gradient(objective, s)
        direction = by_hand.direction(s.g_tr, s.T) if estimator == "algorithm1" else s.v
        parts = zip(a, s.lr, s.g_hat, direction, strict=True)
        terms = torch.cat([(-RHO * lr * x * g_hat**2 * y).flatten() for x, lr, g_hat, y in parts])
        rounding = 1e-13 * terms.abs().sum().item()
        assert measured(opt, model, batches, plain) == pytest.approx(terms.sum().item(), rel=0, abs=rounding)


@pytest.mark.parametrize("base_name", oracle.BASES)
@pytest.mark.parametrize("method", METHODS)
def test_the_finite_difference_tends_to_exact_linearly(method, base_name):
    model, (warm_up, batches) = oracle.make_model(), oracle.make_data(2)
    base = oracle.make_base(base_name, model)
    letsam.create(method, base, model=model, rho=RHO).step(oracle.closures(model, warm_up)[0])
    weights, state = oracle.weights(base), base.state_dict()

    def slope(estimator, rho):
        other = oracle.make_model()
        other_base = oracle.make_base(base_name, other)
        other_base.load_state_dict(copy.deepcopy(state))  # it would share the moments
        with torch.no_grad():
            for p, x in zip(other.parameters(), weights, strict=True):
                p.copy_(x)
        opt = learner(method, other_base, other, rho, estimator=estimator, objective="validation")
        return measured(opt, other, batches) / rho

    errors = []
    for rho in (4e-3, 2e-3, 1e-3, 5e-4):
        exact = slope("exact", rho)
        errors.append(abs(slope("finite-difference", rho) - exact) / abs(exact))
    for larger, smaller in itertools.pairwise(errors):
        assert larger / smaller == pytest.approx(2.0, rel=0.1)
    assert errors[-1] < 0.05


def test_an_unknown_base_has_the_plain_learning_rate_as_jacobian():
    model, data = oracle.make_model(), oracle.make_data(WARM_UP)
    groups = [{"params": list(part.parameters())} for part in (model.conv, model.hidden, model.head)]
    groups[2]["lr"] = 3e-3
    base = torch.optim.RMSprop(groups, lr=1e-2)
    opt = learner("sam", base, model, estimator="finite-difference", objective="validation")
    for batches in data:
        s = by_hand.take(model, base, batches, RHO)
        terms = zip(s.g_vl, s.lr, s.g_hat, s.g, strict=True)
        expected = -sum(lr * (x * (g_hat - g)).sum() for x, lr, g_hat, g in terms)
        assert measured(opt, model, batches) == pytest.approx(expected.item(), rel=1e-10, abs=0)


@pytest.mark.parametrize("estimator", ["algorithm1", "appendix", "finite-difference", "exact"])
def test_length_free_takes_out_the_part_along_the_step(estimator):
    """With plain SGD and one learning rate, the slope of an objective along ĝ is nothing but length."""
    slopes = {}
    for length_free in (False, True):
        model, (batches,) = oracle.make_model(), oracle.make_data(1)
        base = torch.optim.SGD(model.parameters(), lr=0.1)
        g_hat = by_hand.take(model, base, batches, RHO).g_hat
        opt = learner("sam", base, model, estimator=estimator, objective="validation", length_free=length_free)

        def along_g_hat(model=model, g_hat=g_hat):
            model.zero_grad()
            loss = sum((p * x).sum() for p, x in zip(model.parameters(), g_hat, strict=True))
            loss.backward()
            return loss

        opt.step(oracle.closures(model, batches)[0], along_g_hat)
        slopes[length_free] = abs(opt.last.hyper_gradient)
    assert slopes[True] < 1e-10 * slopes[False]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_squares_do_not_underflow_in_half_precision(dtype):
    g_hat = [torch.full((3,), 1e-4, dtype=dtype)]
    assert (g_hat[0] ** 2 == 0).all() == (dtype == torch.float16)
    torch.testing.assert_close(squared(g_hat)[0], torch.full((3,), 1e-8), rtol=1e-2, atol=0)
