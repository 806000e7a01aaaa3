"""Twenty steps of every method over every base equal reference.py, weights and radius at each step, to 1e-10."""

import math

import pytest
import torch
from torch import nn

import letsam
import oracle
from letsam import reference

STEPS, RHO = 20, 0.1
TOLERANCE = 1e-10
FILTER_DIMS = (0, None, None, None, None, None)  # the first weight is a convolution
MAIN_BASES = ["sgd", "momentum", "nesterov", "adamw"]
OTHER_BASES = ["adam", "dampening"]

OPTIONS = {
    "esam": {"beta": 0.6, "keep": 0.5},
    "looksam": {"k": 5},
    "rst": {"p": 0.5},
    "ae-sam": {"total_steps": STEPS},
    "ae-looksam": {"total_steps": STEPS},
    "le-sam": {"sigma": 0.05, "max": 0.08, "total_steps": STEPS, "anneal": 0.5},
}
LETS = {"lr": 0.05, "decay": 0.97}  # the printed rate moves a radius too little to be seen in 20 steps
BOTH_BRANCHES = {"rst", "looksam", "ae-sam", "ae-looksam"}
CASES = [(name, base) for name in letsam.list_methods() for base in MAIN_BASES] + [
    (name, base)
    for name in ("sam", "looksam", "lets-sam", "lets-asam", "auto-sam", "auto-asam", "auto-gsam")
    for base in OTHER_BASES
]


def method_of(name):
    prefix, _, method = name.partition("-")
    return method if prefix in ("lets", "auto") else name


def radius_after(opt):
    return float(opt.base.param_groups[0]["sam_rho"])


def compare(name, base_name, *, model=None, give_model=True, filter_dims=FILTER_DIMS, seed=0, **options):
    """Run both, step by step; return the reference's steps."""
    model = model or oracle.make_model()
    data = oracle.make_data(STEPS)
    base = oracle.make_base(base_name, model)
    world = oracle.make_world(model, base, oracle.BASES[base_name][3], seed, filter_dims)
    if name.startswith("lets-"):
        options = {"decay": 1.0, **options}  # the paper gives no rate
    if name.startswith("auto-"):
        few = {"every": 1, "gated": False} if "looksam" in name else {"every": 2}
        far = {"bounds": (1e-5, 10.0), "shift": 0.5 * RHO, "kappa": 5.0}  # far enough in so few steps
        options = {**far, **few, **options}
    cosine = options.get("rule") == "cosine" or name.startswith("auto-")
    unread = {"lr", "decay"} if cosine else {"kappa"}  # `create` refuses what the rule does not read
    read = {k: v for k, v in options.items() if k not in unread}
    ours = {k: v for k, v in options.items() if k != "filterwise"}
    draws = {"seed": seed} if seed else {}
    rho = 0.0 if method_of(name) in ("erm", "le-sam") else RHO
    first = {"initial": RHO} if name.startswith("auto-") else {"rho": rho or None}
    expected = reference.trajectory(reference.settings(name, **ours), world, oracle.weights(base), rho, data)
    opt = letsam.create(name, base, model=model if give_model else None, **first, **draws, **read)
    for batches, step in zip(data, expected, strict=True):
        closure, val_closure = oracle.closures(model, batches)
        opt.step(closure, val_closure if opt.needs_validation else None)
        torch.testing.assert_close(oracle.weights(opt), step.theta, rtol=0, atol=TOLERANCE)
        assert opt.last.perturbed == step.perturbed
        if step.perturbed:
            assert opt.last.radius == pytest.approx(step.next_rho, rel=0, abs=TOLERANCE)
        if opt.needs_validation:
            assert radius_after(opt) == pytest.approx(step.next_rho, rel=0, abs=TOLERANCE)
    return expected


@pytest.mark.parametrize(("name", "base"), CASES)
def test_trajectory(name, base):
    method = method_of(name)
    options = OPTIONS.get(method, {}) | (LETS if name.startswith("lets-") else {})
    keep = 1.0 if name == "auto-esam" else options.get("keep", 1.0)  # ĝ − g needs both from the same samples
    steps = compare(name, base, **(options | {"keep": keep}))
    perturbed = sum(step.perturbed for step in steps)
    if method in BOTH_BRANCHES:
        assert 2 <= perturbed <= STEPS - 2
    else:
        assert perturbed == (0 if method == "erm" else STEPS)
    if method == "esam":
        assert {step.samples for step in steps} == {round(keep * oracle.BATCH)}
    radii = [step.next_rho for step in steps]
    if name != method:
        assert max(abs(math.log(rho / RHO)) for rho in radii) > 0.02
        assert len(set(radii)) > 2
    if method == "le-sam":
        assert 0.08 in radii
        assert len(set(radii)) > 5


def test_the_reference_knows_every_method():
    learned = [name for name in reference.METHODS if name not in ("erm", "le-sam")]
    assert {*reference.METHODS, *(f"{kind}-{name}" for kind in ("lets", "auto") for name in learned)} <= set(
        letsam.list_methods()
    )


@pytest.mark.parametrize("name", ["asam", "lets-asam", "auto-asam"])
@pytest.mark.parametrize("case", ["element-wise", "transposed", "no model"])
def test_the_scale_of_asam(name, case):
    transposed = oracle.make_model(conv=nn.ConvTranspose2d(1, 3, 3), width=147)
    arguments = {
        "element-wise": {"filterwise": False, "filter_dims": [None] * 6},
        "transposed": {"model": transposed, "filter_dims": [1, None, None, None, None, None]},
        "no model": {"give_model": False},
    }[case]
    compare(name, "momentum", **arguments)


@pytest.mark.parametrize("length_free", [False, True])
@pytest.mark.parametrize("objective", ["squared-gap", "gap", "validation"])
@pytest.mark.parametrize("estimator", ["algorithm1", "appendix", "finite-difference", "exact"])
def test_every_estimator_and_objective(estimator, objective, length_free):
    options = {"estimator": estimator, "objective": objective, "length_free": length_free}
    for rule, base in (("adam", "adamw"), ("cosine", "nesterov")):
        steps = compare("lets-asam", base, **options, rule=rule, lr=0.05, kappa=0.1)
        assert abs(math.log(steps[-1].next_rho / RHO)) > 1e-3


@pytest.mark.parametrize("estimator", ["finite-difference", "exact"])
@pytest.mark.parametrize("name", ["lets-gnp", "lets-gsam", "lets-looksam", "lets-fsam", "lets-rsam"])
def test_what_the_radius_sees_of_each_combiner_and_perturbation(name, estimator):
    for base in ("momentum", "adam"):
        compare(name, base, estimator=estimator, objective="validation", **LETS)


@pytest.mark.parametrize("name", ["rst", "esam", "rsam", "lets-rst", "lets-esam", "lets-rsam"])
def test_other_seeds_are_other_draws(name):
    method = method_of(name)
    first, other = (compare(name, "sgd", seed=seed, **OPTIONS.get(method, {}))[-1].theta for seed in (0, 7))
    assert not all(torch.equal(x, y) for x, y in zip(first, other, strict=True))


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("name", ["lets-rst", "auto-rst"])
def test_every_kth_perturbed_step(name, every):
    steps = compare(name, "momentum", every=every, **(LETS if name == "lets-rst" else {}))
    updates = sum(step.g_nu is not None for step in steps)
    assert updates == math.ceil(sum(step.perturbed for step in steps) / every)


@pytest.mark.parametrize(("name", "estimator"), [("auto-gsam", "finite-difference"), ("lets-rst", "exact")])
@pytest.mark.parametrize("base", ["nesterov", "adamw"])
def test_what_earlier_steps_said_is_carried_forward(name, estimator, base):
    options = {"estimator": estimator, "objective": "validation", "every": 2, "rule": "cosine", "gated": False}
    steps, alone = (compare(name, base, memory=memory, **options) for memory in (0.8, 0.0))
    assert steps[0].next_rho == alone[0].next_rho
    assert abs(math.log(steps[-1].next_rho / alone[-1].next_rho)) > 1e-3


@pytest.mark.parametrize("memory", [0.0, 0.7])
@pytest.mark.parametrize("base", ["sgd", "adam"])
def test_the_gap_between_the_losses_gates_the_cosine(base, memory):
    options = {"every": 2, "memory": memory, "shift": 0.0}
    steps, free = (compare("auto-asam", base, gated=gated, **options) for gated in (True, False))
    assert abs(math.log(steps[-1].next_rho / RHO)) < abs(math.log(free[-1].next_rho / RHO))


@pytest.mark.parametrize("memory", [0.0, 0.7])
@pytest.mark.parametrize("base", ["sgd", "adam"])
def test_it_grows_only_while_the_perturbed_loss_is_below_the_held_out_one(base, memory):
    options = {"every": 2, "memory": memory, "gated": False, "shift": 0.0, "kappa": 2.0}
    steps, free = (compare("auto-asam", base, capped=capped, **options) for capped in (True, False))
    assert max(step.next_rho for step in steps) < max(step.next_rho for step in free)
    assert len({step.next_rho for step in steps} - {RHO}) >= 2, "sometimes it may move"


def test_far_below_the_shift_the_radius_moves_faster():
    options = {"gated": False, "kappa": 0.02}
    steps, plain = (compare("auto-sam", "momentum", shift=shift, **options) for shift in (10 * RHO, 0.0))
    assert abs(steps[0].next_rho - RHO) == pytest.approx(11 * abs(plain[0].next_rho - RHO), rel=1e-9)


@pytest.mark.parametrize("name", ["lets-sam", "auto-sam"])
def test_bounds(name):
    bounds = (0.95 * RHO, 1.02 * RHO)
    options = {"lr": 0.05} if name == "lets-sam" else {}
    steps = compare(name, "sgd", bounds=bounds, **options)
    assert {step.next_rho for step in steps} & set(bounds)
