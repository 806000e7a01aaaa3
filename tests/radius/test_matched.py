"""The radius that lifts the training loss towards the held-out loss: equal to the reference, with every promise."""

import copy
import math

import pytest
import torch

import letsam
import oracle
from letsam import MatchedRadius, reference
from small import BASES, assert_equal, closures, make_model, radius, train, weights

RHO, STEPS = 0.1, 20
WIDE = (1e-5, 10.0)


def make(base="momentum", method="sam", model=None, **options):
    model = model or make_model()
    axis = MatchedRadius(**{"initial": RHO, "bounds": WIDE, "every": 2} | options)
    return model, letsam.create(method, BASES[base](model.parameters()), model=model, radius=axis)


@pytest.mark.parametrize("base", oracle.BASES)
@pytest.mark.parametrize("method", ["sam", "asam", "gsam", "rst", "looksam", "fsam", "gnp"])
@pytest.mark.parametrize(("every", "memory"), [(1, 0.0), (2, 0.8)])
def test_the_trajectory_is_that_of_the_reference(method, base, every, memory):
    model, data = oracle.make_model(), oracle.make_data(STEPS)
    torch_base = oracle.make_base(base, model)
    world = oracle.make_world(model, torch_base, oracle.BASES[base][3])
    settings = reference.settings(method, radius="matched", every=every, memory=memory, bounds=WIDE)
    expected = reference.trajectory(settings, world, oracle.weights(torch_base), RHO, data)
    axis = MatchedRadius(RHO, every, memory, WIDE)
    opt = letsam.create(method, torch_base, model=model, radius=axis)
    for batches, step in zip(data, expected, strict=True):
        opt.step(*oracle.closures(model, batches))
        torch.testing.assert_close(oracle.weights(opt), step.theta, rtol=0, atol=1e-10)
        assert radius(opt).item() == pytest.approx(step.next_rho, rel=1e-10, abs=0)
    assert len({step.next_rho for step in expected} - {RHO}) >= 2


def test_on_a_plane_it_is_the_gap_over_the_norm_of_the_gradient():
    """L = ⟨a, θ⟩ + c rises by ρ‖a‖ over a step of length ρ, wherever θ is; the base stands still."""
    a, theta = torch.tensor([3.0, 4.0], dtype=torch.float64), torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    opt = letsam.create("sam", torch.optim.SGD([theta], lr=0.0), radius=MatchedRadius(0.1, 1, 0.0, WIDE))

    def loss_of(constant):
        def closure():
            opt.zero_grad()
            loss = (a * theta).sum() + constant
            loss.backward()
            return loss

        return closure

    for _ in range(3):  # by a factor e at most at once
        opt.step(loss_of(1.0), loss_of(4.0))
    found = math.sqrt(0.75) * 3.0 / 5.0  # three quarters of the held-out loss are the gap
    assert radius(opt).item() == pytest.approx(found, rel=1e-12)
    opt.step(loss_of(1.0), loss_of(0.9))  # no gap
    assert radius(opt).item() == pytest.approx(found / math.e, rel=1e-12)
    for _ in range(20):
        opt.step(loss_of(1.0), loss_of(0.9))
    assert radius(opt).item() == WIDE[0]


def test_where_the_perturbation_goes_downhill_it_grows_by_a_factor_e_to_its_bound():
    _, opt = make(memory=0.0, bounds=(0.02, 0.4))
    losses = {"loss": 1.0, "perturbed_loss": 0.9, "val_loss": 2.0}
    signal = {name: torch.tensor(value) for name, value in losses.items()}
    seen = []
    for _ in range(3):
        opt.radius.update(signal, torch.tensor(True), opt.param_groups[0])
        seen.append(radius(opt).item())
    assert seen == pytest.approx([RHO * math.e, 0.4, 0.4])


@pytest.mark.parametrize("base", BASES)
def test_resume_equals_never_having_stopped(base):
    model, opt = make(base, every=3)
    train(model, opt, 4)
    other, resumed = make(base, every=3, model=make_model(seed=9))
    other.load_state_dict(weights(model))
    resumed.load_state_dict(copy.deepcopy(opt.state_dict()))
    train(model, opt, 6, first=4)
    train(other, resumed, 6, first=4)
    assert_equal(model, other)
    assert torch.equal(radius(opt), radius(resumed))
    assert opt.param_groups[0]["sam_nu_updates"] == 4


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_validation_loss_that_is_not_finite_moves_nothing_of_the_radius(value):
    model, opt = make(every=1)
    train(model, opt, 3)
    scalars = {k: float(v) for k, v in opt.param_groups[0].items() if k.startswith(("sam_rho", "sam_mean"))}
    closure, val_closure = closures(model, 5)

    def spoiled():
        return val_closure() * value

    opt.step(closure, spoiled)
    assert scalars == {k: float(opt.param_groups[0][k]) for k in scalars}
    assert opt.param_groups[0]["sam_radius_skipped"] == 1
    train(model, opt, 1, first=6)
    assert radius(opt).item() != scalars["sam_rho"]


def test_it_keeps_no_list_and_makes_one_pass_in_k():
    model, opt = make(every=5)
    passes = []
    for t in range(10):
        closure, val_closure = closures(model, t)
        opt.step(closure, val_closure if t % 5 == 0 else None)
        passes.append(opt.last.passes)
    assert passes == [3, 2, 2, 2, 2, 3, 2, 2, 2, 2]
    assert all(set(state) == {"momentum_buffer"} for state in opt.base.state.values())
    with pytest.raises(ValueError, match="a learned radius needs validation batches"):
        opt.step(closure)


def test_frozen_it_is_a_constant():
    model, opt = make(every=1)
    train(model, opt, 3)
    opt.freeze_radius()
    rho = radius(opt).item()
    assert not opt.needs_validation
    train(model, opt, 3, first=3)
    assert radius(opt).item() == rho


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"initial": 0.01}, "the initial radius is 0.01; give a number between 0.02 and 10"),
        ({"every": 0}, "every is 0; give a number at least 1"),
        ({"memory": 1.0}, "memory is 1.0"),
        ({"bounds": (0.0, 1.0)}, r"bounds\[0\] is 0.0; give a positive number"),
    ],
)
def test_bad_settings_are_one_line(options, line):
    with pytest.raises(ValueError, match=line):
        MatchedRadius(**options)


def test_samples_must_be_the_same_in_both_passes():
    with pytest.raises(
        ValueError, match="keep < 1 gives the perturbed pass other samples: their losses cannot be compared"
    ):
        letsam.create("esam", BASES["sgd"](make_model().parameters()), radius=MatchedRadius(), keep=0.5)
