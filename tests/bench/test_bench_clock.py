"""The clocks: who steps when, what is left in memory, what the numbers are made of."""

import gc
import weakref
from contextlib import nullcontext
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from rich.console import Console

from letsam.bench import measure
from letsam.bench.contenders import BATCHES, Contender, Stage, contenders
from letsam.bench.display import Lines
from letsam.bench.rows import Timing, disturbed, make_row, relate, typical
from letsam.bench.settings import Settings
from letsam.bench.tasks import TASKS, find_task, mean_loss, sample_losses
from letsam.experiments.config import Spec


def small(**options):
    defaults = {"model": "small-cnn", "batch": 4, "steps": 3, "warmup": 2, "device": "cpu", "methods": ("erm", "sam")}
    return Settings(**defaults | options).resolved()


def quiet():
    return Lines(Console(quiet=True))


def test_on_a_cpu_everybody_steps_in_turn():
    calls = []

    def make(name):
        def step(t):
            if name == "b" and t == 3:
                raise RuntimeError("tired")
            calls.append((t, name))
            return torch.tensor(0.5), t

        return Contender(name, "letsam", "eager", lambda stage: step)

    def broken(stage):
        raise TypeError("cannot be made")

    everybody = [make("a"), make("b"), make("c"), Contender("d", "peer", "eager", broken)]
    results = measure.on_cpu(Stage(small()), everybody, quiet())
    assert calls == [(t, name) for t in range(5) for name in "abc" if (t, name) not in ((3, "b"), (4, "b"))]
    a, b, _, d = (results[contender] for contender in everybody)
    assert (a.passes, len(a.times), a.loss) == ([2, 3, 4], 3, 0.5)  # without the two steps of the warm-up
    assert (b, d) == ("RuntimeError: tired", "TypeError: cannot be made")


class FakeEvent:
    """Counts its records in place of a clock."""

    now = 0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        FakeEvent.now += 1
        self.at = FakeEvent.now

    def elapsed_time(self, other):
        return float(other.at - self.at)


@pytest.fixture
def no_gpu(monkeypatch):
    """Stand-ins for what the CUDA clock asks of the device."""
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    for name in ("max_memory_allocated", "max_memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda: 3 * 2**20)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())


@pytest.mark.usefixtures("no_gpu")
def test_on_cuda_one_after_the_other_each_alone():
    class Watched(Stage):
        alive: ClassVar = weakref.WeakSet()

        def model(self):
            gc.collect()
            assert not self.alive
            model = super().model()
            self.alive.add(model)
            return model

    stage = Watched(small(methods=("erm", "auto-sam")))
    everybody, _ = contenders(stage.settings)
    results = measure.on_cuda(stage, everybody, quiet())
    assert list(results) == everybody
    for timing in results.values():
        assert isinstance(timing, Timing), timing
        assert (timing.times, timing.mean_ms, timing.peak_mib) == ([1.0] * 9, 1.0, 3.0)  # three rounds of three steps


@pytest.mark.usefixtures("no_gpu")
def test_on_cuda_a_failure_stays_alone():
    def broken(stage):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    fine = contenders(small())[0][0]
    out_of_memory = Contender("a", "peer", "compiled", broken)
    results = measure.on_cuda(Stage(small()), [out_of_memory, fine], quiet())
    assert results[out_of_memory] == "OutOfMemoryError: CUDA out of memory. Tried to allocate"
    assert isinstance(results[fine], Timing)


@pytest.mark.usefixtures("no_gpu")
def test_on_cuda_eager_steps_are_timed_in_rounds_of_everybody():
    made = []

    def maker(name, fails=False):
        def make(stage):
            made.append(name)
            if fails:
                raise RuntimeError("no")
            return lambda t: (torch.zeros(()), 1)

        return make

    everybody = [
        Contender("a", "peer", "eager", maker("a")),
        Contender("b", "peer", "eager", maker("b", fails=True)),
        Contender("c", "letsam", "compiled", maker("c")),
        Contender("d", "letsam", "eager", maker("d")),
    ]
    results = measure.on_cuda(Stage(small(steps=45)), everybody, quiet())
    assert made == ["a", "a", "b", "d", "a", "d", "a", "d", "c"]  # the first one loads libraries
    assert [len(results[c].times) for c in everybody if c.name != "b"] == [60, 45, 60]  # rounds of whole tens
    assert results[everybody[1]] == "RuntimeError: no"


def test_modes_ask_for_capture(monkeypatch):
    import letsam
    from letsam.bench.contenders import ours

    asked = []

    class Enough(Exception):
        pass

    def closure(model, loss_fn, batch, **options):
        asked.append(options)
        raise Enough

    monkeypatch.setattr(letsam, "closure", closure)
    stage = Stage(small(dtype="bfloat16"))
    for mode in ("eager", "captured", "compiled"):
        with pytest.raises(Enough):
            ours(stage, "sam", mode)(0)
    bf16 = {"autocast": torch.bfloat16}
    assert asked == [
        {**bf16, "capture": False, "compile": False},
        {**bf16, "capture": True, "compile": False},
        {**bf16, "capture": True, "compile": {"combo_kernels": True}},
    ]


def test_captured_passes_need_a_longer_warm_up(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    settings = Settings(model="small-cnn", device="cuda", warmup=2)
    with pytest.raises(ValueError, match="--warmup is 2; give at least 3"):
        settings.resolved()
    assert replace(settings, modes=("eager",)).resolved().dtype == "bfloat16"


def test_run_needs_no_display_and_leaves_torch_as_it_was():
    before = torch.backends.cudnn.benchmark
    record = measure.run(Settings(model="small-cnn", batch=4, steps=1, warmup=1, methods=("erm",), device="cpu"))
    assert record["rows"][-1]["name"] == "erm"
    assert record["environment"]["cudnn_benchmark"] is True
    assert torch.backends.cudnn.benchmark == before


def test_the_usual_step_counts_the_rare_one():
    assert typical([1.0, 2.0, 9.0], [2, 2, 2]) == 2.0
    assert typical([1.0, 1.0, 50.0, 1.0, 11.0], [2, 2, 2, 2, 4]) == pytest.approx((4 * 1.0 + 11.0) / 5)


def timing(*times, passes=1):
    return Timing([*times], passes if isinstance(passes, list) else [passes] * len(times), 0.0, 0.1)


def related(entries, paired):
    """Rows by name and mode, of (name, kind, mode): timing."""
    rows = [make_row(*who, time) for who, time in entries.items()]
    relate(rows, list(entries.values()), paired)
    return {(row["name"], row["mode"]): row for row in rows}


def test_rows_stand_beside_the_plain_one_of_their_mode():
    entries = {
        ("torch SGD", "plain", "eager"): timing(4.0),
        ("two passes", "two passes", "eager"): timing(5.0, passes=2),
        ("peer", "peer", "eager"): timing(8.0, passes=2),
        ("sam", "letsam", "eager"): timing(6.0, passes=2),
        ("auto", "letsam", "eager"): timing(6.0, passes=3),
        ("erm", "letsam", "captured"): timing(1.0),
        ("sam", "letsam", "captured"): timing(2.0, passes=2),
        ("sam", "letsam", "compiled"): timing(2.0, passes=2),
        ("gone", "letsam", "captured"): "error",
    }
    rows = related(entries, paired=False)
    assert [row["relative"] for row in rows.values()] == [1.0, 1.25, 2.0, 1.5, 1.5, 1.0, 2.0, None, None]
    assert rows["sam", "captured"]["relative_to"] == "erm, captured"
    beside_two = [row["relative_to_two_passes"] for row in rows.values()]
    assert beside_two == [None, None, 8 / 5, 6 / 5, None, None, None, None, None]
    assert rows["sam", "captured"]["speedups"] == {"peer": 4.0}
    assert rows["gone", "captured"]["speedups"] == {}
    everybody = list(rows.values())
    assert disturbed(everybody) == []
    everybody[0]["q3_ms"] = 9.0
    assert "time it again" in disturbed(everybody)[0]


def test_on_a_machine_that_drifts_the_rounds_tell():
    """Everybody takes 1, 2 or 3 times as long as the plain step of the round, while the rounds slow down tenfold.

    auto makes a step of six plain ones in the last round; in one round the clock of sam was interrupted.
    """
    pace = [1.0, 2.0, 4.0, 8.0, 10.0]
    entries = {
        ("torch SGD", "plain", "eager"): timing(*pace),
        ("two passes", "two passes", "eager"): timing(*(2 * x for x in pace), passes=2),
        ("peer", "peer", "eager"): timing(*(3 * x for x in pace), passes=2),
        ("erm", "letsam", "eager"): timing(*pace),
        ("sam", "letsam", "eager"): timing(2.5, 5.0, 400.0, 20.0, 25.0, passes=2),
        ("auto", "letsam", "eager"): timing(2.0, 4.0, 8.0, 16.0, 60.0, passes=[2, 2, 2, 2, 3]),
    }
    rows = related(entries, paired=True)
    assert rows["sam", "eager"]["relative"] == 2.5
    assert rows["sam", "eager"]["relative_to_two_passes"] == 1.25
    assert rows["sam", "eager"]["speedups"]["peer"] == pytest.approx(1.2)
    assert rows["auto", "eager"]["relative"] == pytest.approx((4 * 2 + 6) / 5)
    assert rows["auto", "eager"]["relative_to_two_passes"] is None
    assert rows["auto", "eager"]["speedups"]["peer"] == pytest.approx(3 / 2.8)
    assert rows["sam", "eager"]["ms"] == 20.0  # as it is, whatever the rounds say
    assert related(entries, paired=False)["sam", "eager"]["relative"] == 5.0


SMALLER = {
    "resnet18": "width=4",
    "wrn28-10": "depth=10,width=1,classes=3",
    "vit-s": "width=16,depth=1,heads=2,size=16",
    "decoder-125m": "width=16,depth=1,heads=2,vocabulary=40,context=16",
    "decoder-350m": "width=16,depth=1,heads=2,vocabulary=40,context=16",
    "mlp-2000": "layers=3,width=8",
    "small-cnn": "width=4",
}


@pytest.mark.parametrize("name", TASKS)
def test_every_model_has_batches_that_fit(name):
    task = find_task(Spec.parse(f"{name}:{SMALLER[name]}"))
    model, batches = task.model("cpu"), task.batches(BATCHES, 2, "cpu")
    assert len(batches) == BATCHES
    inputs, targets = batches[0]
    outputs = model(inputs)
    each = sample_losses(outputs, targets)
    assert each.shape == (2,)
    torch.testing.assert_close(each.mean(), mean_loss(outputs, targets))
    again = task.model("cpu")
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))
