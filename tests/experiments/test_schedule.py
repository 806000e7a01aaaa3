import math

import pytest

from letsam.experiments.schedule import factor


@pytest.mark.parametrize(("name", "last"), [("cosine", 0.0), ("linear", 0.0), ("exponential", 0.01), ("constant", 1.0)])
def test_from_one_to_the_end(name, last):
    assert factor(name, 0, 100) == 1
    assert factor(name, 100, 100) == pytest.approx(last, abs=1e-15)
    values = [factor(name, t, 100) for t in range(101)]
    assert values == sorted(values, reverse=True)


def test_cosine_is_torchs():
    import torch

    opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 50)
    for t in range(50):
        assert opt.param_groups[0]["lr"] == pytest.approx(factor("cosine", t, 50), abs=1e-12)
        opt.step()
        scheduler.step()


def test_warm_up_and_inverse_sqrt():
    assert [factor("inverse-sqrt", t, 100, 4) for t in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert factor("inverse-sqrt", 15, 100, 4) == math.sqrt(4 / 16)
    assert factor("linear", 10, 110, 10) == 1
