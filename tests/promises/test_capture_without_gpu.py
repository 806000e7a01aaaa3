"""capture=True where there is no GPU: the eager closure, and one line in the log."""

import gc
import logging
import weakref
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import letsam
from letsam import capture, closures
from letsam.capture import CaptureError, Graphs, graphs_of
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
        graphs.run(run, lambda: lambda x: (None,), (torch.ones(1),), kind, model, None)
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


class Temperature(nn.Module):
    """A weight that no module of a closure has: a plain function divides by it."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.9))

    def loss(self, output, target):
        return LOSS(output / self.scale, target)


def with_temperature(steps=8, **options):
    model, temperature = make_model(), Temperature()
    base = torch.optim.SGD([*model.parameters(), *temperature.parameters()], lr=0.05, momentum=0.9)
    opt = letsam.create("sam", base, model=model)
    for t in range(steps):
        opt.step(letsam.closure(model, temperature.loss, batch(2 * t), **options))
        if "scaler" in options:
            options["scaler"].update()
    return model, temperature


def test_weights_that_only_the_loss_function_knows_are_trained_by_captured_passes(monkeypatch):
    eager = with_temperature()
    model, temperature = make_model(), Temperature()
    pretend(monkeypatch, model, temperature)
    base = torch.optim.SGD([*model.parameters(), *temperature.parameters()], lr=0.05, momentum=0.9)
    opt = letsam.create("sam", base, model=model)
    for t in range(8):
        opt.step(letsam.closure(model, temperature.loss, batch(2 * t), capture=True))
    assert graphs_of(model).captures == 1  # a bound method is equal to itself, though it is made anew
    assert_equal(eager[0], model)
    assert torch.equal(eager[1].scale, temperature.scale)


def test_a_scaler_unscales_them_too():
    plain, scaled = with_temperature(), with_temperature(scaler=torch.amp.GradScaler("cpu", init_scale=1024.0))
    assert_equal(plain[0], scaled[0])  # a power of two changes no bit
    assert torch.equal(plain[1].scale, scaled[1].scale)
    assert plain[1].scale != 0.9


def test_a_loss_of_torch_that_is_made_anew_is_the_same_one(monkeypatch):
    model = make_model()
    pretend(monkeypatch, model)
    opt = create("sam", model)
    for t in range(12):
        smoothing = 0.0 if t < 6 else 0.1
        train(model, opt, 1, first=t, loss_fn=nn.CrossEntropyLoss(label_smoothing=smoothing), capture=True)
    assert graphs_of(model).captures == 2


def test_a_loss_without_a_hash(monkeypatch):
    @dataclass
    class Smoothed:
        share: float

        def __call__(self, output, target):
            return nn.functional.cross_entropy(output, target, label_smoothing=self.share)

    model = make_model()
    pretend(monkeypatch, model)
    train(model, create("sam", model), 4, loss_fn=Smoothed(0.1), capture=True)
    assert graphs_of(model).captures == 1


def test_of_many_graphs_those_that_are_not_used_are_dropped(monkeypatch):
    kinds = [f"epoch {e}" for e in range(60) for _ in range(100)]
    graphs, _ = eager_passes(kinds, monkeypatch)
    assert graphs.captures > 40
    assert len(graphs._graphs) == 25


def test_a_buffer_that_is_another_tensor_in_every_pass_is_named(monkeypatch, caplog):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = make_model()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen = self.seen + 1
            return self.net(x)

    model = Counting()
    pretend(monkeypatch, model)
    train(model, create("sam", model), 60, capture=True)
    assert graphs_of(model).captures == 0
    assert [m for m in caplog.messages if "no pass is captured: seen of the model is another tensor" in m]


def test_what_one_closure_may_run_eagerly_another_may_not(monkeypatch, caplog):
    model = make_model()
    pretend(monkeypatch, model)

    def fails(*_):
        raise CaptureError("the pass cannot be captured: it waits")

    monkeypatch.setattr(capture, "_warm_up", fails)
    opt = create("sam", model)
    train(model, opt, 6, capture="try")
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("; such passes run eagerly")
    with pytest.raises(CaptureError, match="the pass cannot be captured"):
        train(model, opt, 3, capture=True)


def test_an_autocast_around_the_step_is_part_of_what_is_captured(monkeypatch):
    model = make_model()
    pretend(monkeypatch, model)
    opt = create("sam", model)
    train(model, opt, 3, capture=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        train(model, opt, 3, capture=True)
    assert graphs_of(model).captures == 2


def test_every_model_is_compiled_however_many_there_were(monkeypatch):
    """torch keeps eight versions of one code and runs the others uncompiled."""
    compiled, compile = [], torch.compile
    backend = lambda graph, inputs: compiled.append(graph) or graph  # noqa: E731
    monkeypatch.setattr(torch, "compile", lambda f, **_: compile(f, backend=backend, dynamic=False))
    torch.compiler.reset()
    for n in range(10):
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 10 + n))
        assert closures._compiled(True)(model, LOSS, batch(0)).mean() > 0
    assert len(compiled) == 10


def test_a_graph_does_not_hold_its_model(monkeypatch):
    """In a cycle the memory of both would wait for the garbage collector."""
    monkeypatch.setattr(capture.Graph, "replay", lambda graph, arguments: graph._outputs)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(pool=lambda: None))
    pretend_nothing = {"graph": lambda *_, **__: nullcontext(), "device": lambda _: nullcontext()}
    for name, stand_in in pretend_nothing.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(capture, "_side_stream", lambda _: None)
    monkeypatch.setattr(capture, "_warm_up", lambda *_: None)
    monkeypatch.setattr(closures, "_on_gpu", lambda _: True)
    model = make_model()
    for t in range(3):
        letsam.closure(model, LOSS, batch(t), capture=True)()
    assert graphs_of(model).captures == 1
    gone = weakref.ref(model)
    gc.collect()
    gc.disable()
    try:
        del model
        assert gone() is None
    finally:
        gc.enable()
