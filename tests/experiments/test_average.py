"""The moving average of the weights: exact, resumed exactly, evaluated, and absent when it is off."""

from dataclasses import replace

import pytest
import torch
from test_loop import TINY, finished, make

from letsam.experiments.average import Average
from letsam.experiments.checkpoint import save_checkpoint
from letsam.experiments.models import create, digest

AVERAGED = replace(TINY, ema=0.8, method="lets-sam")


def doubles(model):
    return {name: value.double() for name, value in model.state_dict().items()}


def moved(expected, model, keep):
    """The formula; counters are copied."""
    state = model.state_dict()
    return {
        name: keep * expected[name] + (1 - keep) * now if state[name].is_floating_point() else now
        for name, now in doubles(model).items()
    }


def test_the_average_is_that_of_the_formula():
    torch.manual_seed(0)
    model = create("resnet32", 3)
    opt = torch.optim.SGD(model.parameters(), 1e-3)
    average, expected = Average(model), doubles(model)
    for _ in range(6):
        opt.zero_grad()
        model(torch.randn(4, 3, 32, 32)).square().mean().backward()
        opt.step()
        average.update(1 - 0.9)
        expected = moved(expected, model, 0.9)
    assert average.state.keys() == expected.keys()
    for name, value in average.state.items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-6, atol=1e-7)
    counters = [value for value in average.state.values() if not value.is_floating_point()]
    assert {int(value) for value in counters} == {6}


def test_a_run_averages_after_every_step():
    averaged, plain = make(AVERAGED), make(replace(AVERAGED, ema=0.0))
    expected = doubles(plain.model)
    averaged.epoch()
    for i in range(plain.steps):
        plain._step(0, i)
        expected = moved(expected, plain.model, 0.8)
    assert averaged.average is not None
    for name, value in averaged.average.state.items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-6)


def test_the_average_is_evaluated_and_does_not_touch_the_training():
    averaged, plain = make(AVERAGED), make(replace(AVERAGED, ema=0.0))
    for _ in range(2):
        rows = averaged.epoch(), plain.epoch()
    assert digest(averaged.model) == digest(plain.model)
    assert rows[0]["train_loss"] == rows[1]["train_loss"]
    assert rows[0]["test_loss"] != rows[1]["test_loss"]
    assert averaged.average is not None
    plain.model.load_state_dict(averaged.average.state)
    assert plain.evaluate(2) == {name: rows[0][name] for name in ("test_loss", "test_accuracy")}


def test_off_there_is_none():
    run = make()
    run.epoch()
    assert run.average is None
    assert run.state_dict()["average"] is None


@pytest.mark.parametrize("base", ["sgd", "adamw"])
def test_resume_has_the_same_average(base, tmp_path):
    training = replace(AVERAGED, base=base)
    (tmp_path / "whole").mkdir()
    whole, half = finished(training, tmp_path / "whole"), make(training)
    half.epoch()
    save_checkpoint(tmp_path / f"{training.identity}.safetensors", half.state_dict())
    resumed = finished(training, tmp_path)
    assert digest(resumed.model) == digest(whole.model)
    assert resumed.average is not None
    assert whole.average is not None
    assert all(torch.equal(resumed.average.state[name], value) for name, value in whole.average.state.items())
    assert resumed.rows[-1]["test_loss"] == whole.rows[-1]["test_loss"]
