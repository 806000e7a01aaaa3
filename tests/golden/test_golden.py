"""Ours beside the public implementations.

The JSON files hold the weights that the public code of each method gave; repository, commit, class and how
it was called are in the file, the inputs in `golden_problem.py`. First come the recordings that ours repeats,
then each difference that is on purpose: ours differs, and the public rule as we understand it, written out by
hand or set by an option of ours, gives the public numbers, so that the reason given is the whole reason.
"""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_problem import BATCH, STEPS, batch, build
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import letsam

Case = dict[str, Any]
Rule = Callable[[int, Tensor, Callable[[Tensor], Tensor]], Tensor]

CASES: dict[str, Case] = {
    f"{file.stem}/{case['name']}": case
    for file in sorted(Path(__file__).parent.glob("*.json"))
    for source in json.loads(file.read_text())["sources"]
    for case in source["cases"]
}
# Six steps of some 100 roundings of 1e-16 each are 6e-14; the rest is margin for other machines.
ROUNDING = 1e-12
# GSAM and LookSAM (Leminhbinh0209) add 1e-12 to norms, and to their products, where ours adds nothing; the
# smallest of these here is about 0.03, which makes 3e-11 of a gradient.
QUOTIENT = 1e-10
# The differences on purpose are at least of this size.
VISIBLE = 1e-3


def recorded(case: Case) -> Tensor:
    rows = [[x for tensor in weights for x in tensor] for weights in case["weights"]]
    return torch.tensor(rows, dtype=torch.float64)


def base_of(case: Case, model: torch.nn.Module) -> torch.optim.Optimizer:
    options = dict(case["base"])
    return getattr(torch.optim, options.pop("class"))(model.parameters(), **options)


def run(step: Callable[[int], None], model: torch.nn.Module) -> Tensor:
    """The weights before the first step and after each, one row a step."""
    rows = [parameters_to_vector(model.parameters()).detach()]
    for t in range(STEPS):
        step(t)
        rows.append(parameters_to_vector(model.parameters()).detach().clone())
    return torch.stack(rows)


def ours(case: Case, method: str, **options: Any) -> Tensor:
    model = build(case["problem"])
    opt = letsam.create(method, base_of(case, model), model=model, rho=case["options"]["rho"], **options)
    per_sample = method == "esam"

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(logits, y, reduction="none" if per_sample else "mean")

    return run(lambda t: opt.step(letsam.closure(model, loss, batch(t))), model)


def by_hand(case: Case, rule: Rule) -> Tensor:
    """`rule(t, θ, gradient)` gives what the base optimizer gets; θ and gradients are flat vectors."""
    model = build(case["problem"])
    params, base = list(model.parameters()), base_of(case, model)

    def step(t: int) -> None:
        x, y = batch(t)

        def gradient(theta: Tensor) -> Tensor:
            vector_to_parameters(theta, params)
            return torch.cat([g.flatten() for g in torch.autograd.grad(cross_entropy(model(x), y), params)])

        theta = parameters_to_vector(params).detach()
        d = rule(t, theta.clone(), gradient)
        vector_to_parameters(theta, params)
        for p, g in zip(params, d.split([p.numel() for p in params]), strict=True):
            p.grad = g.view_as(p)
        base.step()

    return run(step, model)


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference over all steps, relative to the largest weight."""
    return ((a - b).abs().max() / b.abs().max()).item()


def named(prefix: str) -> list[str]:
    """The recordings of one kind, over its base optimizers."""
    return [name for name in CASES if name.rpartition("/")[0] == prefix]


def each(*prefixes: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name for prefix in prefixes for name in named(prefix)])


@pytest.fixture
def recorded_masks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Case], None]:
    """Lets ESAM's weight part keep the tensors that the public code kept, in place of its own draws."""

    def use(case: Case) -> None:
        if "kept" in case:
            masks = case["kept"]
            draws = lambda seed, t, n: [1.0 - kept for kept in masks[t]]  # noqa: E731
            monkeypatch.setattr("letsam.perturbations.uniforms", draws)

    return use


# Each with the epsilon of the public code (`tiny`).
ELEMENTWISE = {"xi": 0.0, "filterwise": False}
EQUAL: dict[str, tuple[str, dict[str, Any]]] = {
    "sam/sam": ("sam", {"tiny": 1e-12}),
    "sam/adaptive": ("asam", ELEMENTWISE | {"tiny": 1e-12}),
    "asam/sam": ("sam", {"tiny": 1e-16}),
    "asam/nobias": ("asam", {"xi": 0.01, "filterwise": False, "tiny": 1e-16}),
    "asam/linear-nobias": ("asam", {"xi": 0.01, "tiny": 1e-16}),  # no convolution: filter-wise changes nothing
    "gsam/gsam": ("gsam", {"alpha": 0.4}),
    "gsam/adaptive": ("gsam", {"alpha": 0.4, "perturbation": letsam.Adaptive(**ELEMENTWISE)}),
    "esam/sam": ("esam", {"beta": 1.0, "keep": 1.0, "tiny": 1e-7}),
    "esam/weights": ("esam", {"beta": 0.6, "keep": 1.0, "tiny": 1e-7}),
    "looksam/primed": ("looksam", {"alpha": 0.7, "k": 3}),
    "fsam/fsam": ("fsam", {"sigma": 1.0, "momentum": 0.9, "tiny": 1e-12}),
    "fsam/half": ("fsam", {"sigma": 0.5, "momentum": 0.6, "tiny": 1e-12}),
}


@each(*EQUAL)
def test_equal_to_the_public_numbers(name: str, recorded_masks: Callable[[Case], None]) -> None:
    case = CASES[name]
    recorded_masks(case)
    method, options = EQUAL[name.rpartition("/")[0]]
    tolerance = QUOTIENT if method in ("gsam", "looksam") else ROUNDING
    assert gap(ours(case, method, **options), recorded(case)) < tolerance


def test_every_recording_starts_from_the_inputs_and_moves() -> None:
    for case in CASES.values():
        weights = recorded(case)
        assert torch.equal(weights[0], parameters_to_vector(build(case["problem"]).parameters()))
        assert all(gap(a, b) > VISIBLE for a, b in pairwise(weights))


@each("esam/weights")
def test_esam_official_draws_one_step_ahead(name: str) -> None:
    """A step's tensors are drawn at the end of the step before; the first step has all of them and yet divides
    by β. Ours draws for every step, so above it is given the recorded masks to be comparable."""
    case = CASES[name]
    drawn = [[u <= case["options"]["beta"] for u in draws] for draws in case["draws"]]
    assert case["kept"] == [[True] * len(drawn[0]), *drawn[:-1]]
    assert gap(ours(case, "esam", beta=0.6, keep=1.0, tiny=1e-7), recorded(case)) > VISIBLE


@each("sam/adaptive")
def test_davda54_adaptive_is_not_asam(name: str) -> None:
    """`adaptive=True` there is T = |θ|. Ours has T = |θ| + ξ, and the norms of filters for convolutions."""
    case = CASES[name]
    assert gap(ours(case, "asam"), recorded(case)) > VISIBLE
    assert gap(ours(case, "asam", **ELEMENTWISE), recorded(case)) < ROUNDING


@each("asam/nobias")
def test_asam_official_is_elementwise_on_convolutions(name: str) -> None:
    """Ours is filter-wise by default, as the LETS paper has T for convolutions; the official code is not."""
    case = CASES[name]
    assert gap(ours(case, "asam"), recorded(case)) > VISIBLE
    assert gap(ours(case, "asam", filterwise=False, tiny=1e-16), recorded(case)) < ROUNDING


@each("asam/bias", "asam/linear-bias")
def test_asam_official_does_not_scale_biases(name: str) -> None:
    """The official code has T = |θ| + η for tensors named weight and T = 1 for biases; ours follows the LETS
    paper, where T = |θ| + ξ for every parameter."""
    case = CASES[name]
    rho, eta = case["options"]["rho"], case["options"]["eta"]
    parameters = build(case["problem"]).named_parameters()
    is_weight = torch.cat([torch.full((p.numel(),), "weight" in n) for n, p in parameters])

    def official(t: int, theta: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
        T, g = torch.where(is_weight, theta.abs() + eta, 1.0), gradient(theta)
        return gradient(theta + rho * T**2 * g / (T * g).norm())

    assert gap(ours(case, "asam", xi=eta, filterwise=False), recorded(case)) > VISIBLE
    assert gap(by_hand(case, official), recorded(case)) < ROUNDING


@each("esam/data", "esam/both")
def test_esam_official_keeps_one_sample_fewer(name: str, recorded_masks: Callable[[Case], None]) -> None:
    """The official code keeps samples whose rise of loss is strictly above the k-th largest: k − 1, and for
    k = 1 none. Ours keeps k = γB, never fewer than one; asked for k − 1 it gives the official numbers."""
    case = CASES[name]
    recorded_masks(case)
    options, k = {"beta": case["options"]["beta"], "tiny": 1e-7}, int(case["options"]["gamma"] * BATCH)
    assert case["selected"] == [k - 1] * STEPS
    assert gap(ours(case, "esam", keep=k / BATCH, **options), recorded(case)) > VISIBLE
    assert gap(ours(case, "esam", keep=(k - 1) / BATCH, **options), recorded(case)) < ROUNDING


def looksam(case: Case, *, per_tensor: bool = False, slip: bool = False, eps: float = 0.0) -> Rule:
    """LookSAM, with what the public codes do otherwise as switches; eps as in rollovd."""
    rho, alpha, k = (case["options"][key] for key in ("rho", "alpha", "k"))
    sizes = [p.numel() for p in build(case["problem"]).parameters()]
    blocks = sizes if per_tensor else [sum(sizes)]
    g_v: list[Tensor] = []

    def rule(t: int, theta: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
        g = gradient(theta)
        if t % k == 0:
            g_hat = gradient(theta + rho * g / (g.norm() + eps))
            along = theta if slip and t == 0 else g
            parts = zip(g_hat.split(blocks), along.split(blocks), strict=True)
            g_v[:] = [h - (h @ u) / (u @ u) * u for h, u in parts]
            return g_hat
        return torch.cat(
            [x + alpha * x.norm() / (v.norm() + eps) * v for x, v in zip(g.split(blocks), g_v, strict=True)]
        )

    return rule


@each("looksam/unprimed")
def test_looksam_leminhbinh_first_projects_on_the_weights(name: str) -> None:
    """A slip there: the first `ascent_step` stores the weights as `old_grad`, so until the next such step
    g_v is the part of ĝ orthogonal to θ_0, not to g_0. Without it ("primed") the numbers equal ours."""
    case = CASES[name]
    assert gap(ours(case, "looksam", alpha=0.7, k=3), recorded(case)) > VISIBLE
    assert gap(by_hand(case, looksam(case, slip=True)), recorded(case)) < QUOTIENT


@each("looksam/many")
def test_looksam_rollovd_decomposes_per_tensor(name: str) -> None:
    """There each tensor has its own projection and its own ‖g‖/‖g_v‖. Ours are global, as in the paper."""
    case = CASES[name]
    assert gap(ours(case, "looksam", alpha=0.75, k=3, tiny=1e-8), recorded(case)) > VISIBLE
    assert gap(by_hand(case, looksam(case, per_tensor=True, eps=1e-8)), recorded(case)) < ROUNDING


@each("looksam/single")
def test_looksam_rollovd_with_one_tensor(name: str) -> None:
    """With one tensor, per tensor is global; what is left is the 1e-8 that rollovd adds to ‖g‖ and to ‖g_v‖.
    Ours has `tiny` for the first only; the second is 1e-8/‖g_v‖ of a step, some 1e-7 here."""
    case = CASES[name]
    mine = ours(case, "looksam", alpha=0.75, k=3, tiny=0.0)
    assert gap(by_hand(case, looksam(case, eps=1e-8)), recorded(case)) < ROUNDING
    assert gap(by_hand(case, looksam(case, eps=0.0)), mine) < ROUNDING
    assert gap(mine, recorded(case)) < 1e-6
