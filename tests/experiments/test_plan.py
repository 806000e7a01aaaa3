import json
import math
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
import torch
from made_records import run_record

from letsam.experiments.checkpoint import save_checkpoint
from letsam.experiments.plan import Speeds, machine, missing, passes, steps_per_epoch, to_go, within
from letsam.experiments.recipe import Training, load_recipe
from letsam.experiments.records import BENCH, FORMAT

ROOT = Path(__file__).resolve().parents[2]
TABLE = load_recipe(ROOT / "recipes", "cifar10")


def write(folder, name, record):
    (folder / f"{name}.json").write_text(json.dumps(record))


@pytest.fixture
def measured(tmp_path):
    rows = [
        {"kind": "plain", "name": "torch SGD", "ms": 1.0},
        {"kind": "letsam", "name": "erm", "mode": "eager", "ms": 10.0},
        {"kind": "letsam", "name": "erm", "mode": "compiled", "ms": 2.5},
        {"kind": "letsam", "name": "sam", "mode": "compiled", "ms": 5.0},
    ]
    settings = {"model": "resnet18", "batch": 128}
    facts = {"kind": BENCH, "format": FORMAT, "environment": {"device": "Some GPU"}}
    write(tmp_path, "bench", {**facts, "settings": settings, "rows": rows})
    write(tmp_path, "other", {"what": "ever"})
    return tmp_path


def test_passes_of_a_run():
    assert steps_per_epoch(Training()) == 391
    assert passes(Training(method="lets-sam")) == 4 * 391 * 200


def test_minutes_from_a_benchmark_on_the_same_device(measured):
    speeds = Speeds([measured], "Some GPU")
    assert speeds.minutes(Training(method="sam")) == (pytest.approx(1 + 1.5 * 2 * 391 * 200 * 2.5 / 60_000), True)
    assert speeds.minutes(Training(batch=256)) == (pytest.approx(1 + 1.5 * 196 * 200 * 5.0 / 60_000), False)
    assert not speeds.minutes(Training(model="vit-s"))[1]
    assert not Speeds([measured], "Another GPU").minutes(Training())[1]


def test_what_is_not_compiled_starts_at_once_and_takes_as_long_as_its_launches(tmp_path):
    """Where nothing was measured: 72 runs of small transformers take an hour less than with a minute to compile."""
    speeds, table = Speeds([tmp_path], "Some GPU"), load_recipe(ROOT / "recipes", "glue-minilm")
    run = table.cell("erm", "cola", 0)
    assert not run.compile
    assert speeds.minutes(run) == (pytest.approx(0.1 + 1.5 * 2.5 * passes(run) / 60_000), False)
    assert speeds.minutes(replace(run, compile=True))[0] == pytest.approx(1.0, abs=0.5)
    assert sum(planned.minutes for planned in missing(table, set(), speeds)) < 50


def test_rows_are_as_long_as_their_sentences(tmp_path):
    """DeBERTa on the H200's assumed speed: a row of CoLA is short, and no row is longer than the recipe's length."""
    speeds, table = Speeds([tmp_path], "Some GPU"), load_recipe(ROOT / "recipes", "glue")
    a_pass = {}
    for column in ("cola", "mrpc", "rte"):
        run = table.cell("erm", column, 0)
        a_pass[column] = (speeds.minutes(run)[0] - 0.1) / passes(run)
    assert a_pass["mrpc"] / a_pass["rte"] == pytest.approx(88 / 208)
    assert a_pass["cola"] < a_pass["mrpc"]
    short = replace(table.cell("erm", "mrpc", 0), length=44)
    assert (speeds.minutes(short)[0] - 0.1) / passes(short) == pytest.approx(a_pass["mrpc"] / 2)


def finished(folder, run, *seconds, device=("Some GPU",)):
    write(folder, run.identity, run_record(run, seconds, *device))


def test_finished_runs_come_before_the_benchmark(measured):
    """The first epoch compiles; others on the GPU make a run slow, so the fastest counts; its own method's first."""
    finished(measured, Training(method="sam", epochs=3), 90.0, 60.0, 60.0)
    finished(measured, Training(method="sam", epochs=3, seed=1), 90.0, 80.0, 80.0)
    speeds = Speeds([measured], "Some GPU")
    assert speeds.minutes(Training(method="sam")) == (pytest.approx(200.5), True)
    assert speeds.minutes(Training(method="erm")) == (pytest.approx(100.5), True)
    assert speeds.minutes(Training(method="sam", batch=256)) == (pytest.approx(0.5 + 200 * 392 / 391), False)
    finished(measured, Training(method="erm", epochs=2), 20.0, 15.0)
    assert Speeds([measured], "Some GPU").minutes(Training()) == (pytest.approx((5 + 200 * 15) / 60), True)
    assert Speeds([measured], "Some GPU").minutes(Training(data="cifar100"))[0] < 10  # other data: the benchmark


def test_another_processor_is_another_machine(tmp_path):
    finished(tmp_path, Training(epochs=2), 60.0, 60.0, device=machine("cpu"))
    assert Speeds([tmp_path], "cpu").minutes(Training(epochs=2)) == (pytest.approx(2.0), True)
    finished(tmp_path, Training(epochs=2), 60.0, 60.0, device=("cpu", "Another CPU"))
    assert not Speeds([tmp_path], "cpu").minutes(Training(epochs=2))[1]


def test_epochs_in_a_checkpoint_are_not_planned_again(measured, tmp_path):
    run = missing(TABLE, set(), Speeds([measured], "Some GPU"))[0]
    identity = run.training.identity
    assert to_go(run, tmp_path / "work") == run
    place = tmp_path / "work" / identity
    place.mkdir(parents=True)
    save_checkpoint(place / f"{identity}.safetensors", {"rows": [{}] * 150, "model": {"x": torch.zeros(3)}})
    left = to_go(run, tmp_path / "work")
    assert (left.minutes, left.done) == (pytest.approx(run.minutes / 4), 150)
    (place / f"{identity}.safetensors").write_bytes(b"damaged")
    assert to_go(run, tmp_path / "work") == run


def test_the_order_of_what_is_missing(measured):
    speeds = Speeds([measured], "Some GPU")
    plan = missing(TABLE, set(), speeds)
    assert len(plan) == 132
    assert [run.training.method for run in plan[:5]] == ["erm", "sam", "lets-sam", "asam", "lets-asam"]
    assert {run.training.model for run in plan[:11]} == {"resnet18"}
    assert [run.training.seed for run in plan] == sorted(run.training.seed for run in plan)
    done = {plan[0].training.identity}
    assert [run.training for run in missing(TABLE, done, speeds)] == [run.training for run in plan[1:]]


def test_a_budget_is_filled(measured):
    plan = missing(TABLE, set(), Speeds([measured], "Some GPU"))
    chosen = within(plan, 25, attrgetter("minutes"))
    assert sum(run.minutes for run in chosen) <= 25
    assert [run.training.method for run in chosen[:2]] == ["erm", "sam"]
    with pytest.raises(ValueError, match=r"nothing fits into --minutes 0.1; the shortest takes \d+\.\d minutes"):
        within(plan, 0.1, attrgetter("minutes"))
    for wrong in (0, -5, math.nan):
        with pytest.raises(ValueError, match="give a positive number"):
            within(plan, wrong, attrgetter("minutes"))
    assert within([], 5, attrgetter("minutes")) == []


def test_a_scaled_run_is_another_run(measured):
    plan = missing(TABLE, set(), Speeds([measured], "Some GPU"), scale=0.1)
    assert plan[0].training.epochs == 20
