"""Triton kernels against the foreach versions that define them, on the device."""

import pytest
import torch

import letsam
from letsam import tensors
from letsam.radius.jacobian import with_jacobian
from letsam.space import Space
from letsam.tensors import Scaled, add_scaled_, moved

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SHAPES = [(3,), (64, 16, 3, 3), (5000,), (1,), (10, 7), (4096,), (3, 4097), (16, 64, 3, 3), (300, 700)]
FILTERS = [None, 0, None, None, None, None, None, 0, None]


@pytest.fixture(params=[torch.float32, torch.bfloat16, torch.float16], ids=str)
def lists(request):
    torch.manual_seed(0)
    theta, g = ([torch.randn(s, device="cuda").to(request.param) for s in SHAPES] for _ in range(2))
    for some in (theta, g):
        some[7] = some[7].to(memory_format=torch.channels_last)
    return theta, g


@pytest.fixture
def foreach(monkeypatch):
    def use():
        monkeypatch.setattr(tensors, "kernel_table", lambda *lists: None)

    return use


def test_the_kernels_are_used(lists):
    assert tensors.kernel_table(*lists) is not None


def test_move_and_come_back(lists, foreach):
    theta, g = lists
    start = [x.clone() for x in theta]
    backup = [torch.empty_like(x) for x in theta]
    s = torch.tensor(0.37, dtype=torch.float64, device="cuda")
    with moved(theta, backup, Scaled(g, s)):
        for x, x0, y in zip(theta, start, g, strict=True):
            want = (x0.float() + 0.37 * y.float()).to(x.dtype)
            torch.testing.assert_close(x, want, rtol=torch.finfo(x.dtype).eps, atol=1e-6)
        assert all(torch.equal(a, b) for a, b in zip(backup, start, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(theta, start, strict=True))


def test_add_scaled(lists):
    a, b = lists
    start = [x.clone() for x in a]
    add_scaled_(a, b, torch.tensor(-0.37, dtype=torch.float64, device="cuda"))
    for x, x0, y in zip(a, start, b, strict=True):
        want = (x0.float() - 0.37 * y.float()).to(x.dtype)
        torch.testing.assert_close(x, want, rtol=torch.finfo(x.dtype).eps, atol=1e-6)


@pytest.mark.parametrize("finite", [True, False])
def test_what_is_carried(lists, foreach, finite):
    new, old = lists
    if not finite:
        new[2][17] = torch.nan
    flag = torch.tensor(finite, device="cuda")
    ours, plain = ([x.clone() for x in new] for _ in range(2))
    tensors.carry_(flag, ours, old, 0.9)
    foreach()
    tensors.carry_(flag, plain, old, 0.9)
    for x, y in zip(ours, plain, strict=True):
        torch.testing.assert_close(x, y, rtol=2 * torch.finfo(x.dtype).eps, atol=1e-6)


def test_a_difference_without_its_part_along_a_list(lists):
    a, b = lists
    wide_a, wide_b = ([x.double() for x in some] for some in lists)
    square = sum((x * x).sum() for x in wide_a)
    s = (square - sum((x * y).sum() for x, y in zip(wide_a, wide_b, strict=True))) / square
    start = [x.clone() for x in b]
    assert Space(a).across_(a, b)
    for found, x, y in zip(b, wide_a, wide_b, strict=True):
        want = ((x - y) - s * x).to(found.dtype)
        torch.testing.assert_close(found, want, rtol=2 * torch.finfo(found.dtype).eps, atol=1e-5)
    found = [x.clone() for x in start]
    assert Space(a).across_([torch.zeros_like(x) for x in a], found)
    assert all(torch.equal(x, -y) for x, y in zip(found, start, strict=True))


def test_the_gradient_of_gsam(lists, foreach):
    ours, plain = ([[x.clone() for x in some] for some in lists] for _ in range(2))
    letsam.SurrogateGap().perturbed(Space(ours[0]), *ours)
    foreach()
    letsam.SurrogateGap().perturbed(Space(plain[0]), *plain)
    for x, y in zip(ours[1], plain[1], strict=True):
        torch.testing.assert_close(x, y, rtol=4 * torch.finfo(x.dtype).eps, atol=4 * torch.finfo(x.dtype).eps)


@pytest.mark.parametrize("fused", [True, False])  # a fused base counts its steps on the device
def test_the_jacobian_of_adam(lists, foreach, fused):
    theta, b = ([x.float() for x in some] for some in lists)  # foreach would square small numbers in float16
    params = [torch.nn.Parameter(x) for x in theta]
    base = torch.optim.AdamW(params, lr=3e-3, eps=1e-3, fused=fused)
    for _ in range(3):
        for p in params:
            p.grad = 0.1 * torch.randn_like(p)
        base.step()
    ours = with_jacobian(b, Space(params), base)
    foreach()
    for x, y in zip(ours, with_jacobian(b, Space(params), base), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-6)


def test_products(lists, foreach):
    a, b = lists
    space = Space(a)
    found = [space.norm(a), *space.dots((a, b), (b, b), (a, a))]
    foreach()
    want = [space.norm(a), *space.dots((a, b), (b, b), (a, a))]
    exact = [
        sum((x.double() * y.double()).sum() for x, y in zip(*pair, strict=True)) for pair in ((a, b), (b, b), (a, a))
    ]
    for x, y in zip(found[1:], exact, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6 * float(exact[1]))
    for x, y in zip(found, want, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6 * float(exact[1]))


def test_adaptive(lists):
    theta, g = lists
    u, norm, length = Space(theta).adapted(theta, g, FILTERS, 0.01)
    T = [
        x.double().abs() + 0.01 if f is None else (x.double().flatten(1).norm(dim=1) + 0.01).view(-1, 1, 1, 1)
        for x, f in zip(theta, FILTERS, strict=True)
    ]
    for found, t, y in zip(u, T, g, strict=True):
        torch.testing.assert_close(found.double(), t * t * y.double(), rtol=2 * torch.finfo(found.dtype).eps, atol=1e-6)
    exact = sum(((t * y.double()) ** 2).sum() for t, y in zip(T, g, strict=True)).sqrt()
    torch.testing.assert_close(norm, exact, rtol=1e-6, atol=0)
    exact = sum(((t * t * y.double()) ** 2).sum() for t, y in zip(T, g, strict=True)).sqrt()
    torch.testing.assert_close(length, exact, rtol=1e-6, atol=0)


def test_what_does_not_fit_goes_through_foreach():
    whole = torch.randn(64, 64, device="cuda")
    assert tensors.kernel_table([whole.double()]) is None
    assert tensors.kernel_table([whole[:, ::2]]) is None
    assert tensors.kernel_table([whole.flatten()[1:65]]) is None
    assert tensors.kernel_table([whole], [whole.t()]) is None
    assert tensors.kernel_table([whole, whole.half()]) is None
