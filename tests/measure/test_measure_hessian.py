"""Products, top eigenvalue and trace against the exact Hessian."""

import pytest
import torch
from quadratic import WIDTH, Quadratic, half_square
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from letsam.experiments.models.vit import VisionTransformer
from letsam.measure import Objective, top_eigenvalue, trace
from small import LOSS, batch, make_model


def network(norm=True):
    torch.manual_seed(3)
    layers = [nn.Linear(4, 6), nn.BatchNorm1d(6) if norm else nn.Identity(), nn.Tanh(), nn.Linear(6, 3)]
    model = nn.Sequential(*layers).double()
    generator = torch.Generator().manual_seed(4)
    batches = [
        (torch.randn(n, 4, dtype=torch.float64, generator=generator), torch.randint(3, (n,), generator=generator))
        for n in (7, 7, 3)
    ]
    return model, batches


def exact_hessian(model, batches, training):
    """∇² of the weighted mean loss as one matrix, by autograd over a flat vector."""
    names, shapes = zip(*((name, p.shape) for name, p in model.named_parameters()), strict=True)
    sizes = [shape.numel() for shape in shapes]
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    was = model.training

    def loss(vector):
        parts = {name: x.view(s) for name, x, s in zip(names, vector.split(sizes), shapes, strict=True)}
        total = sum(
            len(y)
            * cross_entropy(functional_call(model, {**parts, **{k: b.clone() for k, b in buffers.items()}}, x), y)
            for x, y in batches
        )
        return total / sum(len(y) for _, y in batches)

    model.train(training)
    hessian = torch.autograd.functional.hessian(loss, flat)
    model.train(was)
    return hessian


@pytest.mark.parametrize("training", [False, True])
def test_products_and_eigenvalue_of_a_network_equal_the_exact_ones(training):
    model, batches = network()
    H = exact_hessian(model, batches, training)
    objective = Objective(model, cross_entropy, batches, training=training)
    vectors = [torch.randn_like(p) for p in objective.params]
    product = torch.cat([x.reshape(-1) for x in objective.product(vectors)])
    torch.testing.assert_close(product, H @ torch.cat([x.reshape(-1) for x in vectors]), rtol=1e-10, atol=1e-12)

    values, every = torch.linalg.eigh(H)
    found = top_eigenvalue(objective)
    assert abs(found.value - float(values[-1])) < 1e-8
    assert found.residual < 1e-5 * found.value
    vector = torch.cat([x.reshape(-1) for x in found.vector])
    assert abs(float(vector @ every[:, -1])) == pytest.approx(1, abs=1e-8)
    assert [x.shape for x in found.vector] == [p.shape for p in objective.params]

    estimate = trace(objective, probes=400)
    assert abs(estimate.value - float(H.trace())) < 4 * estimate.error
    off = H - H.diag().diag()
    assert estimate.error == pytest.approx(float((2 * off.square().sum() / 400).sqrt()), rel=0.3)


def test_a_quadratic():
    problem = Quadratic()
    objective = Objective(problem.model, half_square, problem.batches(5))
    values = torch.linalg.eigvalsh(problem.H)
    found = top_eigenvalue(objective)
    assert found.value == pytest.approx(float(values[-1]), abs=1e-12)
    assert found.steps <= WIDTH
    exact = top_eigenvalue(objective, tolerance=0)  # goes on until the whole space is spanned
    assert exact.residual < 1e-12
    assert exact.steps == WIDTH


def test_the_trace_of_a_diagonal_hessian_is_exact():
    problem = Quadratic()
    problem.X = torch.diag(torch.arange(1.0, WIDTH + 1, dtype=torch.float64))
    problem.y = torch.zeros(WIDTH, dtype=torch.float64)
    objective = Objective(problem.model, half_square, [(problem.X, problem.y)])
    found = trace(objective, probes=3)
    assert found.value == pytest.approx(sum(i**2 for i in range(1, WIDTH + 1)) / WIDTH, rel=1e-12)
    assert found.error < 1e-12


def test_the_most_positive_eigenvalue_not_the_largest_in_size():
    model = nn.Linear(3, 1, bias=False).double()
    scale = torch.tensor([-5.0, 1.0, 2.0], dtype=torch.float64)
    objective = Objective(
        model, lambda out, y: (0.5 * scale * model.weight**2).sum() + 0 * out.mean(), [(scale[None], scale)]
    )
    assert top_eigenvalue(objective).value == pytest.approx(2.0, abs=1e-12)
    assert trace(objective, probes=2).value == pytest.approx(-2.0, abs=1e-12)


def test_a_flat_loss_has_eigenvalue_zero():
    model = nn.Linear(3, 1).double()
    x = torch.zeros(4, 3, dtype=torch.float64)
    objective = Objective(model, lambda out, y: (0 * out**2).mean(), [(x, x)])
    assert top_eigenvalue(objective)[0::2] == (0.0, 0.0)
    assert trace(objective, probes=2) == (0.0, 0.0)


def test_the_seed_decides_and_nothing_else():
    model, batches = network()
    objective = Objective(model, cross_entropy, batches)
    first, estimate = top_eigenvalue(objective, steps=3, seed=1), trace(objective, probes=4, seed=1)
    torch.manual_seed(99)
    again = top_eigenvalue(objective, steps=3, seed=1)
    assert (first.value, first.residual, first.steps) == (again.value, again.residual, again.steps)
    assert all(map(torch.equal, first.vector, again.vector))
    assert trace(objective, probes=4, seed=1) == estimate != trace(objective, probes=4, seed=2)
    assert top_eigenvalue(objective, steps=3, seed=2).value != first.value


def test_float32_and_dropout_masks_that_stay():
    model, batches = make_model(dropout=0.5), [batch(i) for i in range(2)]
    wide = make_model(dtype=torch.float64, dropout=0.5)
    wide.load_state_dict(model.state_dict())
    twin = Objective(wide, LOSS, [(x.double(), y) for x, y in batches])
    assert top_eigenvalue(Objective(model, LOSS, batches)).value == pytest.approx(top_eigenvalue(twin).value, rel=1e-4)
    found = top_eigenvalue(Objective(model, LOSS, batches, training=True))
    assert found.residual < 1e-3 * found.value  # masks that change would leave no eigenvector


def test_attention_and_frozen_parameters():
    torch.manual_seed(0)
    model = VisionTransformer(classes=3, width=8, depth=1, heads=2, patch=4, size=8)
    model.embed.requires_grad_(False)
    objective = Objective(model, cross_entropy, [(torch.randn(6, 3, 8, 8), torch.randint(3, (6,)))])
    found = top_eigenvalue(objective, steps=40, tolerance=1e-3)
    assert len(found.vector) == len(list(model.parameters())) - 2
    assert 0 < found.residual <= 0.01 * found.value


def test_what_is_not_finite_is_an_error():
    model, batches = network()
    objective = Objective(model, lambda out, y: out.square().sum() * float("inf"), batches)
    with pytest.raises(FloatingPointError, match="not finite"):
        top_eigenvalue(objective)
    with pytest.raises(ValueError, match="probes is 1"):
        trace(objective, probes=1)
    with pytest.raises(ValueError, match="steps is 0"):
        top_eigenvalue(objective, steps=0)
