"""The oracle against itself: its exact hyper-gradient is the slope of the upper objective through a step."""

import math
from types import SimpleNamespace

import pytest
import torch

import oracle
from letsam import reference as ref

STEPS, RHO = 4, 0.2


def upper_objective(objective, L_tr, L_vl):
    return {"squared-gap": 0.5 * (L_vl - L_tr) ** 2, "gap": L_vl - L_tr, "validation": L_vl}[objective]


@pytest.mark.parametrize("objective", ["squared-gap", "gap", "validation"])
@pytest.mark.parametrize("base", oracle.BASES)
@pytest.mark.parametrize("method", ["lets-sam", "lets-asam", "lets-esam"])
def test_exact_is_the_slope_of_the_upper_objective(method, base, objective):
    model, data = oracle.make_model(), oracle.make_data(STEPS)
    theta = [p.detach() for p in model.parameters()]
    world = oracle.make_world(model, oracle.make_base(base, model), oracle.BASES[base][3])
    o = ref.settings(method, estimator="exact", objective=objective, lr=0.0)
    states = [{} for _ in theta]

    def one_step(t, rho):
        batch, val_batch = data[t]
        g = ref.gradient(world.losses, theta, batch)[1]
        v = ref.direction(o, world, t, theta, None, g)
        kept = ref.select(o, world, theta, ref.add(theta, RHO, v), batch)  # the choice of samples does not move
        g_hat = ref.gradient(world.losses, ref.add(theta, rho, v), kept)[1]
        new, new_states = world.base.step(theta, g_hat, states)
        losses = (world.losses(new, b).mean() for b in (batch, val_batch))
        return new, new_states, upper_objective(objective, *losses).item()

    for t, step in enumerate(ref.trajectory(o, world, theta, RHO, data)):
        slope = oracle.slope_at_zero(lambda nu, t=t: one_step(t, RHO * math.exp(nu))[2])
        assert step.g_nu == pytest.approx(slope, rel=1e-6, abs=0)
        theta, states, _ = one_step(t, RHO)
        torch.testing.assert_close(theta, step.theta, rtol=0, atol=1e-14)


@pytest.mark.parametrize("base", oracle.BASES)
def test_base_rules_are_those_of_torch(base):
    model = oracle.make_model()
    optimizer = oracle.make_base(base, model)
    rule = oracle.make_world(model, optimizer, oracle.BASES[base][3]).base
    theta = [p.detach().clone() for p in model.parameters()]
    states = [{} for _ in theta]
    for t in range(6):
        generator = torch.Generator().manual_seed(t)
        d = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in theta]
        for p, x in zip(model.parameters(), d, strict=True):
            p.grad = x.clone()
        optimizer.step()
        theta, states = rule.step(theta, d, states)
        torch.testing.assert_close(theta, oracle.weights(optimizer), rtol=0, atol=1e-14)


def test_loss_equated_radius_raises_the_linearised_loss_by_sigma():
    o = SimpleNamespace(sigma=0.3, anneal=0.5, total_steps=10, max=0.4)
    g = [torch.tensor([3.0, 4.0], dtype=torch.float64)]
    radii = [ref.loss_equated(o, t, g).item() for t in (0, 5, 7.5, 10, 11)]
    assert radii == pytest.approx([0.06, 0.06, 0.03, 0.0, 0.0], abs=1e-13)
    assert ref.loss_equated(o, 0, [g[0] / 100]).item() == 0.4
