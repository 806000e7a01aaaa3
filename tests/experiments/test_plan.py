import json
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path

import pytest

from letsam.experiments.plan import Speeds, missing, passes, steps_per_epoch, within
from letsam.experiments.recipe import Training, load_recipe
from letsam.experiments.records import BENCH, FORMAT, RUN

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
    assert speeds.minutes(Training(method="sam")) == (pytest.approx(2 * 391 * 200 * 2.5 / 60_000), True)
    assert speeds.minutes(Training(batch=256)) == (pytest.approx(196 * 200 * 5.0 / 60_000), False)
    assert not speeds.minutes(Training(model="vit-s"))[1]
    assert not Speeds([measured], "Another GPU").minutes(Training())[1]


def test_minutes_from_a_finished_run(tmp_path):
    run = Training(model="vit-s", epochs=2)
    facts = {"kind": RUN, "format": FORMAT, "environment": {"device": "cpu"}, "result": {}, "rows": []}
    write(tmp_path, "run", {**facts, "identity": run.identity, "training": asdict(run), "seconds": 120.0})
    assert Speeds([tmp_path], "cpu").minutes(Training(model="vit-s", epochs=4)) == (pytest.approx(4.0), True)


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
    assert within(plan, 0, attrgetter("minutes")) == []


def test_a_scaled_run_is_another_run(measured):
    plan = missing(TABLE, set(), Speeds([measured], "Some GPU"), scale=0.1)
    assert plan[0].training.epochs == 20
