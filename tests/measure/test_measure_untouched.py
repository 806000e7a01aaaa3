"""Whatever is measured, and whatever goes wrong on the way, the model is as it was."""

import pytest
import torch
from torch import nn

import letsam
from letsam.measure import Objective, directions, m_sharpness, n_sharpness, surface, top_eigenvalue, trace
from small import LOSS, assert_equal, batch, make_model, weights

MEASURES = {
    "loss": lambda objective, folder: objective.loss(),
    "m-sharpness": lambda objective, folder: m_sharpness(objective, 0.3),
    "adaptive": lambda objective, folder: m_sharpness(objective, 0.3, letsam.Adaptive()),
    "n-sharpness": lambda objective, folder: n_sharpness(objective, 0.3),
    "eigenvalue": lambda objective, folder: top_eigenvalue(objective, steps=3),
    "trace": lambda objective, folder: trace(objective, probes=2),
    "surface": lambda objective, folder: surface(
        objective.model, {"loss": objective.loss}, directions(objective.model, 0), ([0.0, 0.1], [0.0, 1.0]), folder
    ),
}


class Failing(nn.Module):
    """Raises at the n-th pass, after the layers before it have run."""

    def __init__(self):
        super().__init__()
        self.left = -1

    def forward(self, x):
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("the pass failed")
        return x


def make(dtype):
    model = make_model(dtype=dtype, dropout=0.3)
    model.append(nn.BatchNorm1d(5, momentum=None).to(dtype)).append(failing := Failing())
    model[1].eval()  # one layer in another mode than the rest
    model[0].weight.grad = torch.full_like(model[0].weight, 7.0)
    return model, failing


@pytest.mark.parametrize("fails_at", [None, 1, 2, 4])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MEASURES)
def test_the_model_is_as_it_was(name, dtype, training, fails_at, tmp_path):
    model, failing = make(dtype)
    before, modes = weights(model), [m.training for m in model.modules()]
    places = [x.data_ptr() for x in (*model.parameters(), *model.buffers())]
    grad, state = model[0].weight.grad, torch.get_rng_state()
    objective = Objective(model, LOSS, [batch(i, dtype=dtype) for i in range(2)], training=training)
    failing.left = fails_at or -1
    if fails_at is None or (name == "loss" and fails_at > 2):
        MEASURES[name](objective, tmp_path)
    else:
        with pytest.raises(RuntimeError, match="the pass failed"):
            MEASURES[name](objective, tmp_path)
    assert_equal(before, model)
    assert places == [x.data_ptr() for x in (*model.parameters(), *model.buffers())]
    assert modes == [m.training for m in model.modules()]
    assert torch.equal(state, torch.get_rng_state())
    assert model[0].weight.grad is grad
    assert (grad == 7).all()
    assert all(p.grad is None for p in list(model.parameters())[1:])
    assert torch.is_grad_enabled()
