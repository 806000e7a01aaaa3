"""Any choice of the four axes is a method: it runs, restores, resumes and counts its passes."""

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import letsam
from letsam import SharpnessAware
from small import BASES, assert_equal, make_model, radius, train, weights

unit = st.floats(0, 1)
perturbations = st.one_of(
    st.just(letsam.L2()),
    st.builds(letsam.Adaptive, xi=st.floats(1e-3, 1), filterwise=st.booleans()),
    st.builds(letsam.Masked, beta=st.floats(0.1, 1), seed=st.integers(0, 9)),
    st.builds(letsam.Random, seed=st.integers(0, 9)),
    st.builds(letsam.Friendly, sigma=unit, momentum=unit),
)
policies = st.one_of(
    st.just(letsam.Always()),
    st.just(letsam.Never()),
    st.builds(letsam.Bernoulli, p=unit, seed=st.integers(0, 9)),
    st.builds(letsam.EveryK, k=st.integers(1, 4)),
    st.builds(letsam.GradientNorm, total_steps=st.integers(1, 9)),
)
combiners = st.one_of(
    st.just(letsam.Perturbed()),
    st.builds(letsam.SurrogateGap, alpha=unit),
    st.builds(letsam.Mix, alpha=unit),
    st.builds(letsam.Reuse, alpha=unit),
)
learned = st.builds(
    letsam.LearnedRadius,
    initial=st.floats(1e-3, 0.5),
    estimator=st.sampled_from(["algorithm1", "appendix", "finite-difference", "exact"]),
    objective=st.sampled_from(["squared-gap", "gap", "validation"]),
    length_free=st.booleans(),
    rule=st.sampled_from(["adam", "cosine"]),
    every=st.integers(1, 3),
    lr=st.floats(0, 0.5),
)
radii = st.one_of(st.builds(letsam.ConstantRadius, rho=st.floats(0, 1)), learned)
axes = st.fixed_dictionaries(
    {"perturbation": perturbations, "policy": policies, "combiner": combiners, "radius": radii}
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(axes=axes, base=st.sampled_from(sorted(BASES)))
def test_any_combination(axes, base):
    model = make_model()
    opt = SharpnessAware(BASES[base](model.parameters()), model=model, **axes)
    rate = opt.param_groups[0]["lr"]
    before = weights(model)

    opt.param_groups[0]["lr"] = 0.0
    train(model, opt, 1)
    assert_equal({k: v for k, v in before.items() if "running" not in k and "num" not in k}, model)

    opt.param_groups[0]["lr"] = rate
    train(model, opt, 3, first=1)
    twin, other = copy.deepcopy((model, opt))
    train(model, opt, 3, first=4)
    train(twin, other, 3, first=4)
    assert_equal(model, twin)
    assert torch.equal(radius(opt), radius(other))

    assert opt.param_groups[0]["sam_step"] == 7
    assert opt.param_groups[0]["sam_skipped"] == 0
    assert all(x.isfinite().all() for x in model.state_dict().values())
    if isinstance(opt.radius, letsam.LearnedRadius):
        low, high = opt.radius.bounds
        assert low <= radius(opt) <= high
    else:
        assert radius(opt) == opt.radius.rho
