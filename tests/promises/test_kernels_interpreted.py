"""The Triton kernels, run by Triton's interpreter on the CPU, and compiled but not run; tests/cuda does both."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from letsam.tensors import has_triton

if not has_triton():
    pytest.skip("Triton has no build for this system", allow_module_level=True)
if torch.cuda.is_available():
    pytest.skip("tests/cuda/test_kernels.py runs them on the device", allow_module_level=True)

from letsam import kernels, tensors
from letsam.radius.jacobian import with_jacobian
from letsam.space import Space
from small import assert_equal, create, learns, make_model, radius, train, weights

SHAPES = [(3,), (8, 4, 3, 3), (5000,), (1,), (10, 7), (4096,), (3, 1366), (16, 8, 3, 3)]
FILTERS = (0, 8, 0, 0, 0, 0, 0, 16)


@pytest.fixture
def lists():
    generator = torch.Generator().manual_seed(0)
    theta, g = ([torch.randn(s, generator=generator) for s in SHAPES] for _ in range(2))
    for some in (theta, g):
        some[7] = some[7].to(memory_format=torch.channels_last)
    return theta, g


def test_move_keeps_a_backup_bit_for_bit(lists):
    theta, g = lists
    start, backup = [x.clone() for x in theta], [torch.full_like(x, torch.nan) for x in theta]
    done = torch.zeros((), dtype=torch.int32)
    kernels.move_(kernels.table(theta, backup, g), torch.tensor(0.37, dtype=torch.float64), done)
    assert done
    assert all(torch.equal(a, b) for a, b in zip(backup, start, strict=True))
    for x, x0, y in zip(theta, start, g, strict=True):
        torch.testing.assert_close(x, x0 + 0.37 * y, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("launched", [False, True])
@pytest.mark.parametrize("method", ["sam", "looksam"])
def test_an_interrupt_around_the_launch_leaves_the_weights_of_this_step(method, launched, monkeypatch):
    monkeypatch.setattr(tensors, "kernel_table", kernels.table)
    move_, model = kernels.move_, make_model(norm=False)
    opt = create(method, model)
    train(model, opt, 10)
    before = weights(model)

    def interrupted(*arguments):
        if launched:
            move_(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(kernels, "move_", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(model, opt, 1, first=10)
    assert_equal(before, model)


def interpreted(monkeypatch):
    """Let the optimizer use the kernels on a CPU; returns the names of those that ran, as they run."""
    used = set()
    for name in ("move_", "carry_", "across_", "surrogate_", "adam", "products", "squares"):
        kernel = getattr(kernels, name)
        monkeypatch.setattr(kernels, name, lambda *a, name=name, kernel=kernel: used.add(name) or kernel(*a))
    monkeypatch.setattr(tensors, "kernel_table", kernels.table)
    monkeypatch.setattr(Space, "has_kernels", True)
    return used


def kept_together(model):
    """Let every pass leave its gradients where those of the pass before lay, as a graph does."""
    for p in model.parameters():
        row = torch.zeros(p.numel() + 4)[: p.numel()].view_as(p)
        p.register_post_accumulate_grad_hook(lambda p, row=row: setattr(p, "grad", row.copy_(p.grad)))
    return model


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("method", ["auto-sam", "auto-gsam"])
def test_whole_steps_of_a_learned_radius(method, owned, monkeypatch):
    """All kernels of a step together, twelve steps with six updates, against foreach."""
    plain, model = make_model(), kept_together(make_model()) if owned else make_model()
    expected = create(method, plain, **learns(method, every=2))
    train(plain, expected, 12)
    used = interpreted(monkeypatch)
    opt = create(method, model, **learns(method, every=2))
    train(model, opt, 12)
    assert used >= {"move_", "carry_", "across_", "products", *(["surrogate_"] if method == "auto-gsam" else [])}
    assert float(radius(expected)) > 1.1 * expected.radius.initial
    torch.testing.assert_close(radius(opt), radius(expected), rtol=1e-4, atol=0)
    for name, value in weights(plain).items():
        torch.testing.assert_close(weights(model)[name], value, rtol=1e-4, atol=1e-5)


def test_add(lists):
    a, b = lists
    start = [x.clone() for x in a]
    kernels.add_(kernels.table(a, b), torch.tensor(-0.37, dtype=torch.float64))
    for x, x0, y in zip(a, start, b, strict=True):
        torch.testing.assert_close(x, x0 - 0.37 * y, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("finite", [True, False])
def test_carry(lists, finite):
    new, old = lists
    start = [x.clone() for x in new]
    if not finite:
        new[2][17] = torch.nan
    kernels.carry_(kernels.table(new, old), 0.9, torch.tensor(finite))
    for x, x0, y in zip(new, start, old, strict=True):
        torch.testing.assert_close(x, x0 + 0.9 * y if finite else y, rtol=1e-6, atol=1e-6)


def test_across(lists):
    a, b = lists
    where = kernels.table(a, b)
    aa, ab = (sum(float((x.double() * y.double()).sum()) for x, y in zip(a, some, strict=True)) for some in (a, b))
    want = [(x - y) - (aa - ab) / aa * x for x, y in zip(a, b, strict=True)]
    kernels.across_(where, kernels.products(where))
    for found, expected in zip(b, want, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_across_zero(lists):
    a, b = lists
    start = [x.clone() for x in b]
    where = kernels.table([x.zero_() for x in a], b)
    kernels.across_(where, kernels.products(where))
    assert all(torch.equal(found, -x) for found, x in zip(b, start, strict=True))


@pytest.mark.parametrize("kind", ["any", "equal", "zero"])
def test_surrogate(lists, kind):
    """Where both gradients are the same, nothing is taken away, bit for bit."""
    g, h = lists
    if kind != "any":
        h = [x.clone() if kind == "equal" else torch.zeros_like(x) for x in g]
    wide_g, wide_h = ([x.double() for x in some] for some in (g, h))
    gh, hh = (sum(float((x * y).sum()) for x, y in zip(some, wide_h, strict=True)) for some in (wide_g, wide_h))
    want = [(y - 0.4 * (x - (gh / hh if hh else 0.0) * y)).float() for x, y in zip(wide_g, wide_h, strict=True)]
    where = kernels.table(g, h)
    kernels.surrogate_(where, 0.4, kernels.products(where))
    if kind == "equal":
        assert all(torch.equal(x, y) for x, y in zip(h, g, strict=True))
    torch.testing.assert_close(h, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_the_jacobian_of_adam(lists, kind, monkeypatch):
    """Against foreach in float32, after three steps; some gradients are zero, and so are their moments."""
    theta, b = lists
    params = [torch.nn.Parameter(x) for x in theta]
    base = kind(params, lr=3e-3, betas=(0.8, 0.95), eps=1e-3)
    for step in range(4):
        for i, p in enumerate(params):
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(10 * i + step)).mul_(0.1)
            p.grad = torch.empty_like(p).copy_(p.grad) * (p.detach() > -1)
        if step < 3:
            base.step()
    want = with_jacobian(b, Space(params), base)
    used = interpreted(monkeypatch)
    found = with_jacobian(b, Space(params), base)
    assert "adam" in used
    for x, y in zip(found, want, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-7)


def test_squares_and_products(lists):
    a, b = ([x.double() for x in some] for some in lists)
    exact = [sum(float((x * y).sum()) for x, y in zip(*pair, strict=True)) for pair in ((a, a), (a, b), (b, b))]
    assert float(kernels.squares(kernels.table(lists[0]))) == pytest.approx(exact[0], rel=1e-6)
    assert kernels.products(kernels.table(*lists)).tolist() == pytest.approx(exact, rel=1e-6)


def test_adaptive(lists):
    theta, g = lists
    u = [torch.full_like(x, torch.nan) for x in g]
    squares = kernels.adaptive(kernels.table(theta, g, u), FILTERS, 0.01)
    T = [
        (x.double().flatten(1).norm(dim=1) + 0.01).view(-1, 1, 1, 1) if n else x.double().abs() + 0.01
        for x, n in zip(theta, FILTERS, strict=True)
    ]
    for found, t, y in zip(u, T, g, strict=True):
        torch.testing.assert_close(found.double(), t * t * y.double(), rtol=1e-6, atol=1e-6)
    exact = [sum(float(((t**k * y.double()) ** 2).sum()) for t, y in zip(T, g, strict=True)) for k in (1, 2)]
    assert squares.tolist() == pytest.approx(exact, rel=1e-6)


def test_what_does_not_fit_has_no_table():
    whole = torch.randn(64, 64)
    assert kernels.table([whole]) is not None
    for lists in (
        ([whole.double()],),
        ([whole[:, ::2]],),
        ([whole.flatten()[1:65]],),
        ([whole], [whole.t()]),
        ([whole, whole.half()],),
        ([torch.empty(0)],),
    ):
        assert kernels.table(*lists) is None


def test_a_dimension_of_length_one_has_no_layout():
    """A 1×1 filter: channels last or not is the same order in memory."""
    a, b = torch.randn(6, 4, 1, 1), torch.randn(6, 4, 1, 1).to(memory_format=torch.channels_last)
    b = b.as_strided(b.shape, (4, 1, 4, 4))
    assert a.stride() != b.stride()
    found = kernels.products(kernels.table([a], [b]))
    assert float(found[1]) == pytest.approx(float((a * b).sum()), rel=1e-5)


def test_another_length_at_the_same_address_is_another_table():
    x = torch.ones(8192)
    assert float(kernels.squares(kernels.table([x[:4000]]))) == 4000
    assert float(kernels.squares(kernels.table([x]))) == 8192


def test_another_layout_at_the_same_address_is_another_table():
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    assert kernels.table([a], [b]) is not None
    assert kernels.table([a], [b.t()]) is None


def test_another_type_at_the_same_address_is_another_table():
    a, b = torch.ones(64), torch.ones(64)
    assert kernels.table([a, b]) is not None
    assert kernels.table([a, b.view(torch.bfloat16)[:64]]) is None


def test_a_part_with_gaps_is_not_the_whole_at_the_same_address():
    whole = torch.ones(1024, 32)
    assert kernels.table([whole[:1]]) is not None
    assert kernels.table([whole[:16, :2]]) is None


@pytest.mark.parametrize("capability", ["80", "90"])
def test_they_compile_for_gpus_with_wide_loads(capability, tmp_path):
    """For an A100 and an H100, without one; in a process of its own, where nothing is interpreted."""
    script = Path(__file__).with_name("compile_kernels.py")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, script, capability], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "compiled", done.stderr[-2000:]
