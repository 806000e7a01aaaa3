"""Radii that follow a formula: of the step, of the learning rate, of the gradient norm."""

import math
from itertools import pairwise

import pytest
import torch

from letsam import LossEquatedRadius, ProportionalRadius, RandomWalkRadius, ScheduledRadius, SharpnessAware
from small import BASES, make_model, train


def radii(radius, steps, lr=None):
    model = make_model()
    opt = SharpnessAware(BASES["momentum"](model.parameters()), model=model, radius=radius)
    seen = []
    for t in range(steps):
        if lr is not None:
            opt.param_groups[0]["lr"] = lr[t]
        train(model, opt, 1, first=t)
        seen.append(opt.last.radius)
    return seen


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("exponential", [0.02 * 50 ** (t / 4) for t in range(5)] + [1.0]),
        ("linear", [0.02 + 0.98 * t / 4 for t in range(5)] + [1.0]),
        ("cosine", [0.02 + 0.98 * (1 - math.cos(math.pi * t / 4)) / 2 for t in range(5)] + [1.0]),
    ],
)
def test_growth(shape, expected):
    assert radii(ScheduledRadius(0.02, 1.0, 4, shape), 6) == pytest.approx(expected, rel=1e-12)


def test_tied_to_the_learning_rate():
    """GSAM's schedule: ρ_min + (ρ_max − ρ_min)(lr − lr_min)/(lr_max − lr_min)."""
    radius = ProportionalRadius(rho_max=0.6, rho_min=0.2, lr_max=0.1, lr_min=0.02)
    assert radii(radius, 3, lr=[0.1, 0.06, 0.02]) == pytest.approx([0.6, 0.4, 0.2], rel=1e-12)


def test_tied_to_a_learning_rate_that_leaves_its_bounds():
    radius = ProportionalRadius(rho_max=0.04, rho_min=0.0, lr_max=0.1, lr_min=0.05)
    assert radii(radius, 2, lr=[0.01, 0.2]) == pytest.approx([0.0, 0.04], rel=1e-12)


def test_loss_equated_is_capped_and_ends_at_zero():
    model = make_model()
    radius = LossEquatedRadius(total_steps=10, sigma=0.01, max=0.005, anneal=0.5)
    opt = SharpnessAware(BASES["sgd"](model.parameters()), model=model, radius=radius)
    for t in range(11):
        train(model, opt, 1, first=t)
        rest = max(t - 5, 0) / 5
        sigma = 0.01 * (1 + math.cos(math.pi * rest)) / 2
        assert opt.last.radius == pytest.approx(min(sigma / opt.last.grad_norm, 0.005), rel=1e-9, abs=1e-15)
    assert opt.last.radius == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ScheduledRadius(0.0, 1.0, 4), "positive"),
        (lambda: ScheduledRadius(0.1, 1.0, 4, "square"), "choose from exponential"),
        (lambda: ProportionalRadius(0.1, 0.2, 0.1), "at least 0.2"),
        (lambda: ProportionalRadius(0.2, 0.1, 0.1, 0.1), "positive"),
        (lambda: LossEquatedRadius(0), "total_steps"),
        (lambda: RandomWalkRadius(initial=20), "the initial radius is 20"),
        (lambda: RandomWalkRadius(size=-1), "size is -1"),
    ],
)
def test_bad_values(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_random_walk_has_steps_of_its_size_and_follows_its_seed():
    walk = radii(RandomWalkRadius(0.02, kappa=0.3, size=0.1, seed=1), 200)
    assert walk[0] == pytest.approx(0.02)
    steps = [math.log(b / a) for a, b in pairwise(walk)]
    assert math.sqrt(sum(x * x for x in steps) / len(steps)) == pytest.approx(0.03, rel=0.2)
    assert walk[:5] == radii(RandomWalkRadius(0.02, kappa=0.3, size=0.1, seed=1), 5)
    assert walk[:5] != radii(RandomWalkRadius(0.02, kappa=0.3, size=0.1, seed=2), 5)
    assert max(radii(RandomWalkRadius(0.02, size=100.0, bounds=(0.01, 0.04)), 20)) <= 0.04


@pytest.mark.parametrize("radius", [ScheduledRadius(0.01, 0.1, 6), RandomWalkRadius(0.01)], ids=["schedule", "walk"])
def test_a_path_resumes_by_the_step_alone(radius):
    model = make_model()
    opt = SharpnessAware(BASES["sgd"](model.parameters()), model=model, radius=radius)
    train(model, opt, 3)
    other = make_model(seed=4)
    other.load_state_dict(model.state_dict())
    resumed = SharpnessAware(BASES["sgd"](other.parameters()), model=other, radius=radius)
    resumed.load_state_dict(opt.state_dict())
    train(model, opt, 3, first=3)
    train(other, resumed, 3, first=3)
    assert opt.last.radius == resumed.last.radius
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))
