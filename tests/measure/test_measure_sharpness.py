"""Sharpness of a quadratic is known; the whole set is the case of one batch; weights and balls are letsam's own."""

import math

import pytest
import torch
from quadratic import N, Quadratic, half_square
from torch.nn.functional import cross_entropy

import letsam
from letsam.measure import Objective, m_sharpness, n_sharpness
from small import LOSS, batch, make_model

RHO = 0.3


def rise(problem, rows, adaptive=False):
    """ρ·gᵀv + ½ρ²·vᵀHv, exact for a quadratic."""
    X, w = problem.X[rows], problem.w
    g = X.T @ (X @ w - problem.y[rows]) / len(X)
    T = w.abs() + 0.01 if adaptive else torch.ones_like(w)
    v = T**2 * g / (T * g).norm()
    return float(RHO * g @ v + 0.5 * RHO**2 * v @ (X.T @ (X @ v)) / len(X))


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("m", [1, 4, 5, N])  # 5 leaves a last batch of two
def test_a_quadratic_rises_by_what_the_formula_says(m, adaptive):
    problem = Quadratic()
    objective = Objective(problem.model, half_square, problem.batches(m))
    found = m_sharpness(objective, RHO, letsam.Adaptive() if adaptive else letsam.L2())
    rows = [range(N)[i : i + m] for i in range(0, N, m)]
    expected = [rise(problem, list(r), adaptive) for r in rows]
    assert found.rises == pytest.approx(expected, rel=1e-10)
    assert found.value == pytest.approx(sum(x * len(r) for x, r in zip(expected, rows, strict=True)) / N, rel=1e-10)
    assert found.loss == pytest.approx(float(problem.loss(problem.w)), rel=1e-12)


@pytest.mark.parametrize("adaptive", [False, True])
def test_n_sharpness_is_one_maximum_whatever_the_batches(adaptive):
    problem = Quadratic()
    perturbation = letsam.Adaptive() if adaptive else None
    whole = m_sharpness(Objective(problem.model, half_square, problem.batches(N)), RHO, perturbation)
    for size in (1, 5, N):
        found = n_sharpness(Objective(problem.model, half_square, problem.batches(size)), RHO, perturbation)
        assert found.value == pytest.approx(whole.value, rel=1e-12)
        assert found.value == pytest.approx(rise(problem, list(range(N)), adaptive), rel=1e-10)
    assert found == whole  # one batch: the same passes, bit for bit


def test_no_radius_no_rise_and_smaller_batches_are_sharper():
    problem = Quadratic()
    by_size = [Objective(problem.model, half_square, problem.batches(m)) for m in (1, 3, N)]
    assert [m_sharpness(objective, 0.0).value for objective in by_size] == [0.0] * 3
    values = [m_sharpness(objective, 0.01).value for objective in by_size]
    assert values == sorted(values, reverse=True)  # the mean of maxima is at least the maximum of the mean


def test_it_is_the_rise_that_a_step_of_sam_sees():
    model = make_model(norm=False)
    opt = letsam.create("asam", torch.optim.SGD(model.parameters(), lr=0.0), model=model, rho=0.5)
    opt.step(letsam.closure(model, LOSS, batch(0)))
    seen = float(opt.last.perturbed_loss - opt.last.loss)
    found = m_sharpness(Objective(model, LOSS, [batch(0)]), 0.5, letsam.Adaptive())
    assert found.value == pytest.approx(seen, rel=1e-4)


def test_train_mode_is_another_loss_and_repeats_itself():
    model, batches = make_model(dropout=0.5), [batch(i) for i in range(3)]
    trained = Objective(model, LOSS, batches, training=True)
    assert m_sharpness(trained, 0.1) == m_sharpness(trained, 0.1)  # the same masks in every pass
    assert trained.loss() != Objective(model, LOSS, batches).loss()
    assert trained.loss() != Objective(model, LOSS, batches, training=True, seed=1).loss()
    assert m_sharpness(trained, 1e-3).value > 0  # with new masks in the second pass it would be noise


def test_a_shuffling_loader_and_dict_batches():
    model = make_model()
    images, labels = batch(0, n=32)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), 8, shuffle=True)
    mean = n_sharpness(Objective(model, cross_entropy, loader), 0.1)
    assert mean.value == pytest.approx(n_sharpness(Objective(model, LOSS, [(images, labels)]), 0.1).value, rel=1e-4)
    state = torch.get_rng_state()
    m_sharpness(Objective(model, cross_entropy, loader), 0.1)
    assert torch.equal(torch.get_rng_state(), state)

    dicts = [{"input": images, "labels": labels}]

    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input, labels):
            return self.model(input)

    found = n_sharpness(Objective(Named(), lambda out, b: cross_entropy(out, b["labels"]), dicts), 0.1)
    assert found.value == pytest.approx(mean.value, rel=1e-4)


def test_under_autocast_the_perturbed_weights_are_the_ones_that_count():
    model = make_model(norm=False)
    exact = m_sharpness(Objective(model, LOSS, [batch(0)]), 0.5).value
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = m_sharpness(Objective(model, LOSS, [batch(0)]), 0.5).value
    assert found == pytest.approx(exact, rel=0.1)
    assert found > 0


def test_a_rise_that_is_not_finite_is_told():
    problem = Quadratic()
    objective = Objective(problem.model, half_square, problem.batches(4))
    before = problem.w
    assert not math.isfinite(m_sharpness(objective, 1e200).value)
    assert torch.equal(problem.w, before)


def test_bad_input_is_refused_in_one_line():
    problem = Quadratic()
    with pytest.raises(TypeError, match="give a list"):
        Objective(problem.model, half_square, iter(problem.batches(4)))
    with pytest.raises(ValueError, match="rho is -1"):
        m_sharpness(Objective(problem.model, half_square, problem.batches(4)), -1)
    for measure in (m_sharpness, n_sharpness):
        with pytest.raises(ValueError, match="no batches"):
            measure(Objective(problem.model, half_square, []), 0.1)
    problem.model.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to measure"):
        Objective(problem.model, half_square, problem.batches(4))
