"""Directions, a surface that is known, and surfaces that go on after a kill."""

import json
import logging
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import killed
import pytest
import torch
from quadratic import Quadratic, half_square
from torch import nn

from letsam.measure import Objective, directions, load_surface, surface
from small import LOSS, assert_equal, batch, make_model, weights

HERE = Path(__file__).resolve().parent


class Everything(nn.Module):
    """A parameter of every kind."""

    def __init__(self):
        super().__init__()
        self.conv, self.up = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 5, 2)
        self.norm, self.line = nn.BatchNorm2d(4), nn.Linear(6, 2)
        self.scale = nn.Parameter(torch.tensor(2.0))


def test_filters_have_the_norms_of_the_weights_and_vectors_get_zero():
    model = Everything()
    d = dict(zip((name for name, _ in model.named_parameters()), directions(model, seed=0)[0], strict=True))
    torch.testing.assert_close(d["conv.weight"].flatten(1).norm(dim=1), model.conv.weight.flatten(1).norm(dim=1))
    up = (x.transpose(0, 1).flatten(1).norm(dim=1) for x in (d["up.weight"], model.up.weight))  # outputs come second
    torch.testing.assert_close(*up)
    torch.testing.assert_close(d["line.weight"].norm(dim=1), model.line.weight.norm(dim=1))
    for name in ("conv.bias", "up.bias", "norm.weight", "norm.bias", "line.bias", "scale"):
        assert not d[name].any(), name


def test_models_of_one_shape_have_the_same_directions_up_to_their_filters():
    one, other = make_model(seed=0), make_model(seed=1)
    for a, b in zip(directions(one, seed=3), directions(other, seed=3), strict=True):
        for x, y in zip(a, b, strict=True):
            if x.ndim > 1:
                torch.testing.assert_close(
                    *(z / z.flatten(1).norm(dim=1).view(-1, *[1] * (z.ndim - 1)) for z in (x, y))
                )
    first, second = directions(one, seed=3)
    assert all(map(torch.equal, directions(one, seed=3, count=1)[0], first))
    assert not torch.equal(first[0], directions(one, seed=4)[0][0])
    state = torch.get_rng_state()
    directions(one, seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    big = directions(nn.Linear(300, 300), seed=0)
    assert abs(float((big[0][0] * big[1][0]).sum() / big[0][0].square().sum())) < 0.02  # orthogonal up to chance
    assert not torch.equal(first[0], second[0])


@pytest.mark.parametrize("count", [1, 2])
def test_a_quadratic_is_a_quadratic_along_every_direction(count, tmp_path):
    problem = Quadratic()
    d = directions(problem.model, seed=1, count=count)
    axes = [[-1.0, 0.0, 0.5, 2.0], [-0.5, 0.0, 1.0]][:count]
    found = surface(
        problem.model, {"loss": Objective(problem.model, half_square, problem.batches(5)).loss}, d, axes, tmp_path
    )
    assert found.axes == axes
    for i, y in enumerate(axes[1] if count == 2 else [0.0]):
        for j, x in enumerate(axes[0]):
            w = problem.w + x * d[0][0][0] + (y * d[1][0][0] if count == 2 else 0)
            assert found.values["loss"][i][j] == pytest.approx(float(problem.loss(w)), rel=1e-12)
    centre = found.values["loss"][axes[1].index(0.0) if count == 2 else 0][1]
    assert centre == Objective(problem.model, half_square, problem.batches(5)).loss()


def test_plain_functions_and_tensors_are_losses_too_in_eval_mode(tmp_path):
    model, (x, y) = make_model(dropout=0.5).train(), batch(0)
    seen = []

    def accuracy():
        seen.append(model.training)
        return (model(x).argmax(1) == y).float().mean()

    found = surface(model, {"accuracy": accuracy}, directions(model, 0, 1), [[0.0, 1.0]], tmp_path / "eval")
    model.eval()
    assert found.values["accuracy"][0][0] == float(accuracy())
    model.train()
    surface(model, {"accuracy": accuracy}, directions(model, 0, 1), [[0.0]], tmp_path / "train", training=True)
    assert seen == [False, False, False, True]


def test_a_loss_that_is_not_finite_is_null(tmp_path):
    model = nn.Linear(2, 1, bias=False)
    values = iter([1.0, math.nan, math.inf, torch.tensor(-math.inf)])
    d = directions(model, 0, 1)
    found = surface(model, {"loss": lambda: next(values)}, d, [[0, 1, 2, 3]], tmp_path)
    assert found.values == {"loss": [[1.0, None, None, None]]}
    assert json.loads((tmp_path / "row-0001.json").read_text()) == {"loss": [None]}
    again = surface(model, {"loss": lambda: next(values)}, d, [[0, 1, 2, 3]], tmp_path)
    assert again == found == load_surface(tmp_path)  # a null is an answer: it is not measured again


def test_a_pass_that_raises_leaves_the_weights_and_the_rows(tmp_path, caplog):
    model = make_model(dropout=0.2).train()
    before, modes = weights(model), [m.training for m in model.modules()]
    objective = Objective(model, LOSS, [batch(0)], training=True)
    left = 7

    def fails():
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return objective.loss()

    d, axes = directions(model, 1), ([0.0, 0.5, 1.0], [0.0, 0.5, 1.0])
    with pytest.raises(KeyboardInterrupt):
        surface(model, {"loss": fails}, d, axes, tmp_path / "broken")
    assert_equal(before, model)
    assert modes == [m.training for m in model.modules()]
    assert load_surface(tmp_path / "broken").values["loss"][2] == [None] * 3
    left = 100
    with caplog.at_level(logging.INFO, "letsam"):
        found = surface(model, {"loss": fails}, d, axes, tmp_path / "broken")
    assert caplog.messages == ["landscape: row 3 of 3"]
    assert found == surface(model, {"loss": objective.loss}, d, axes, tmp_path / "whole")
    assert_equal(before, model)


def test_a_killed_process_is_resumed_to_the_same_numbers(tmp_path):
    environment = {**os.environ, "PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE}"}
    command = [sys.executable, str(HERE / "killed.py"), str(tmp_path / "killed"), "0.1"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (tmp_path / "killed" / "row-0001.json").exists():
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    output, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert output == b""
    rows = sorted(path.name for path in (tmp_path / "killed").glob("row-*.json"))
    assert 2 <= len(rows) < len(killed.Y)
    written = {name: (tmp_path / "killed" / name).stat().st_mtime_ns for name in rows}

    assert killed.measure(tmp_path / "killed") == killed.measure(tmp_path / "whole")
    assert written == {name: (tmp_path / "killed" / name).stat().st_mtime_ns for name in rows}  # not measured again


def test_a_folder_is_for_one_surface(tmp_path):
    model = make_model()
    loss = {"loss": Objective(model, LOSS, [batch(0)]).loss}
    d, axes = directions(model, 0), ([0.0], [0.0, 1.0])
    surface(model, loss, d, axes, tmp_path / "a")
    with pytest.raises(ValueError, match="axes differ"):
        surface(model, loss, d, ([0.0], [0.0, 2.0]), tmp_path / "a")
    with pytest.raises(ValueError, match="directions differ"):
        surface(model, loss, directions(model, 1), axes, tmp_path / "a")
    with torch.no_grad():
        model[1].running_mean += 1
    with pytest.raises(ValueError, match="model differ"):
        surface(model, loss, d, axes, tmp_path / "a")
    (tmp_path / "a" / "header.json").unlink()
    with pytest.raises(ValueError, match="no header"):
        surface(model, loss, d, axes, tmp_path / "a")
    with pytest.raises(ValueError, match=r"no header\.json"):
        load_surface(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_bad_input_is_refused_before_anything_is_written(tmp_path):
    model = make_model()
    d, loss = directions(model, 0), {"loss": lambda: 0.0}
    with pytest.raises(ValueError, match="2 directions and 1 axes"):
        surface(model, loss, d, [[0.0]], tmp_path / "a")
    with pytest.raises(ValueError, match="empty or not finite"):
        surface(model, loss, d, [[0.0], []], tmp_path / "a")
    with pytest.raises(ValueError, match="losses is empty"):
        surface(model, {}, d, [[0.0], [0.0]], tmp_path / "a")
    assert not (tmp_path / "a").exists()
