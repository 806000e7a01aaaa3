"""Sums over all parameters, of whatever types, and what is carried from step to step."""

import pytest
import torch

from letsam.space import Space
from letsam.tensors import carry_


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("high", [torch.float32, torch.float64])
@pytest.mark.parametrize("first", ["low", "high"])
def test_norm_and_products_of_lists_of_mixed_types(low, high, first):
    generator = torch.Generator().manual_seed(0)
    a, b = ([torch.randn(size, generator=generator) for size in ((10,), (1000, 100))] for _ in range(2))
    order = (low, high) if first == "low" else (high, low)
    a, b = ([x.to(dtype) for x, dtype in zip(some, order, strict=True)] for some in (a, b))
    exact = lambda a, b: sum(float((x.double() * y.double()).sum()) for x, y in zip(a, b, strict=True))  # noqa: E731
    space = Space(a)
    assert float(space.norm(a)) == pytest.approx(exact(a, a) ** 0.5, rel=1e-4)
    assert float(space.dot(a, b)) == pytest.approx(exact(a, b), rel=1e-4)


def test_a_norm_beyond_float16_is_finite():
    a = [torch.ones(3), torch.full((1000, 1000), 100.0, dtype=torch.float16)]
    assert float(Space(a).norm(a)) == pytest.approx(1e5, rel=1e-3)


@pytest.mark.parametrize("keep", [0.0, 0.9])
@pytest.mark.parametrize("finite", [True, False])
def test_what_is_carried_is_not_poisoned(finite, keep):
    new, old = ([torch.randn(7), torch.randn(3, 2)] for _ in range(2))
    want = [x + keep * y if finite else y for x, y in zip(new, old, strict=True)]
    if not finite:
        new[0][2] = torch.nan
    carry_(torch.tensor(finite), new, old, keep)
    torch.testing.assert_close(new, want)
