"""capture=True where there is no GPU: the eager closure, and one line in the log."""

import logging

import pytest
import torch
from torch import nn

import letsam
from letsam import closures
from letsam.capture import Graphs, graphs_of
from pretended_graphs import pretend
from small import LOSS, assert_equal, batch, create, make_model, train


@pytest.fixture(autouse=True)
def _nothing_said_yet():
    closures._say_once.cache_clear()


@pytest.mark.parametrize("method", ["sam", "esam", "lets-sam", "auto-asam"])
@pytest.mark.parametrize(
    ("capture", "compile"), [(True, False), ("try", False), (True, True), (True, {"combo_kernels": True})]
)
def test_it_is_the_eager_closure(method, capture, compile, caplog):
    plain, captured = make_model(), make_model()
    train(plain, create(method, plain), 4)
    with caplog.at_level(logging.INFO, "letsam"):
        train(captured, create(method, captured), 4, capture=capture, compile=compile)
    assert_equal(plain, captured)
    assert [r.message for r in caplog.records] == [
        "capture=True has no effect: the model is not on a CUDA device, passes run eagerly"
    ]


def test_wrong_words():
    model = make_model()
    with pytest.raises(ValueError, match="capture is 'yes'; choose from False, True, 'try'"):
        letsam.closure(model, LOSS, batch(0), capture="yes")
    with pytest.raises(ValueError, match="pass capture=True with it, or compile the model"):
        letsam.closure(model, LOSS, batch(0), compile=True)


@pytest.mark.parametrize("method", ["sam", "gsam", "lets-asam"])
def test_an_autocast_around_the_step_does_not_hide_the_perturbation(method):
    """Autocast remembers the low-precision weights while it is on: those of θ_t would be used at θ_t + ε."""
    inside, around = make_model(), make_model()
    train(inside, create(method, inside), 5, autocast=torch.bfloat16)
    opt = create(method, around)
    for t in range(5):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            train(around, opt, 1, first=t)
    assert_equal(inside, around)


def eager_passes(kinds, monkeypatch):
    """Graphs that were asked for passes of these kinds, and the kinds of those that ran eagerly."""
    pretend(monkeypatch)
    model, graphs, eager = nn.Linear(1, 1), Graphs(), []
    for kind in kinds:
        run = lambda x, kind=kind: eager.append(kind) or (None,)  # noqa: E731
        graphs.run(run, lambda x: (None,), (torch.ones(1),), kind, model, None)
    return graphs, eager


def test_a_kind_that_comes_late_is_captured_as_well(monkeypatch):
    _, eager = eager_passes(["early"] * 30_000 + ["late"] * 200, monkeypatch)
    assert eager.count("early") == 1
    assert eager.count("late") < 60


def test_a_kind_that_stays_rare_is_never_captured(monkeypatch):
    graphs, _ = eager_passes(["short" if t % 50 == 49 else "whole" for t in range(10_000)], monkeypatch)
    assert graphs.captures == 1


def test_kinds_that_never_come_again_are_forgotten(monkeypatch):
    """A step of SAM has two passes, so that a loss function that is made anew in every step is seen twice."""
    graphs, eager = eager_passes([f"step {t}" for t in range(1_000) for _ in range(2)], monkeypatch)
    assert graphs.captures == 4
    assert len(eager) == 2_000 - 4
    assert len(graphs._seen) <= 100


def test_validation_batches_of_every_tenth_step_are_captured(monkeypatch):
    ten_steps = ["training"] * 20 + ["validation"]
    graphs, eager = eager_passes(ten_steps * 100, monkeypatch)
    assert graphs.captures == 2
    assert eager.count("validation") < 10


def test_one_batch_that_cannot_be_captured_runs_eagerly_and_the_others_are_captured(monkeypatch, caplog):
    model = make_model()
    pretend(monkeypatch, model)
    opt = create("sam", model)
    reasons = iter(["it lies elsewhere"])
    monkeypatch.setattr(closures, "why_not", lambda *_: next(reasons, None))
    train(model, opt, 4, capture="try")
    assert caplog.messages == ["a pass runs eagerly: it lies elsewhere"]
    assert graphs_of(model).captures == 1
