"""letsam study on tiny digits: the grid, its signal, verdicts and figures; resuming; the price of a radius."""

import json
import math
import re
from pathlib import Path

import pytest

from letsam.cli import main
from letsam.experiments import loop, reproduce_command, study_drawing
from letsam.experiments.recipe import load_recipe
from letsam.experiments.records import records
from letsam.experiments.search import bill, bill_rows, taken
from letsam.experiments.study import Task, is_fixed, tasks, verdicts

RECIPE = """
title = "Tiny"
source = "a test"
seeds = [0, 1]
records = "radius"
[train]
data = "digits"
model = "small-cnn"
epochs = 2
batch = 40
lr = 0.03
images = 200
augment = false
precision = "float32"
[columns]
easy = { seeds = [0] }
hard = { noise = 0.4 }
[rows]
erm = { method = "erm" }
"sam-0.05" = { method = "sam", rho = 0.05 }
"sam-0.5" = { method = "sam", rho = 0.5 }
"lets-sam-0.05" = { method = "lets-sam", rho = 0.05 }
auto-sam = { method = "auto-sam", validation = "held-out", options = { every = 1 } }
asam = { method = "asam", only = ["hard"] }
growth = { method = "sam", options = { radius = { rule = "growth", rho = 0.02, final = 1.0, by = 0.6 } } }
random-walk = { method = "sam", options = { radius = { rule = "random-walk", initial = 0.02 } } }
matched = { method = "sam", options = { radius = { rule = "matched", every = 1 } }, validation = "held-out" }
"""
RUNS = 8 + 2 * 9


def write_recipe(folder):
    (folder / "recipes" / "radius-study").mkdir(parents=True)
    (folder / "recipes" / "radius-study" / "recipe.toml").write_text(RECIPE)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A part of the grid first, then the rest: the second command goes on after the first."""
    folder = tmp_path_factory.mktemp("study")
    write_recipe(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["study", "radius", "--rows", "auto-sam", "--out", "images"]) == 0
        first = {path: path.stat().st_mtime_ns for path in (folder / "results" / "radius").iterdir()}
        assert len(first) == 3
        assert not list((folder / "images").glob("*-sensitivity.png"))  # no radius to draw an accuracy against
        assert main(["study", "radius", "--out", "images"]) == 0
        assert all(path.stat().st_mtime_ns == time for path, time in first.items())
    return folder


def test_every_cell_has_its_seeds(place):
    found = records(place / "results" / "radius").values()
    assert len(found) == RUNS
    assert sum(record["training"]["method"] == "asam" for record in found) == 2


def test_learned_radii_tell_what_they_were_asked_for(place):
    for record in records(place / "results" / "radius").values():
        method = record["training"]["method"]
        for row in record["rows"]:
            matched = record["training"]["options"].get("radius", {}).get("rule") == "matched"
            assert ("less" in row) == (matched or method.startswith(("lets-", "auto-")))
            if "less" in row:
                assert 0 <= row["less"] <= 1
                assert 0 <= row["nu_step"] <= (1 if matched else 0.3) * (1 + 1e-6)


def test_controls_follow_their_path(place):
    found = records(place / "results" / "radius").values()
    ends = {r["training"]["options"]["radius"]["rule"]: r for r in found if "radius" in r["training"]["options"]}
    assert ends["growth"]["result"]["rho"] == pytest.approx(1.0)
    assert ends["random-walk"]["result"]["rho"] not in (0.02, pytest.approx(1.0))


def test_the_figures(place):
    names = {path.name for path in (place / "images").iterdir()}
    kinds = ("sensitivity", "radius", "signal")
    wanted = {f"radius-study-{column}-{kind}" for column in ("easy", "hard") for kind in kinds}
    assert names == {f"{name}.{ending}" for name in wanted for ending in ("png", "svg")}


def test_all_done_runs_nothing_and_draws(place, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(place)
    assert main(["study", "radius", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "auto-sam beats the best constant radius on at least three tasks" in out
    assert ": epoch " not in out
    assert len(list(tmp_path.glob("*.png"))) == 6


def test_letsam_figures_has_them_too(place, monkeypatch, tmp_path):
    monkeypatch.chdir(place)
    assert main(["figures", "radius-study", "--out", str(tmp_path), "--page", str(tmp_path / "page.html")]) == 0
    assert f"<b>{RUNS}</b>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_plan_runs_nothing(tmp_path, monkeypatch, capsys):
    write_recipe(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["study", "radius", "--plan"]) == 0
    assert f"{RUNS} runs" in capsys.readouterr().out
    assert main(["study", "price", "--plan"]) == 0
    assert f"{3 * (1 + 2 + 7)} runs" in capsys.readouterr().out
    assert main(["study", "price", "--plan", "--minutes", "0.00001"]) == 2
    assert "nothing fits into --minutes 1e-05; the shortest takes" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["recipes"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["radio"], "invalid choice"),
        (["radius", "--rows", "ram"], "radius-study has no row 'ram'; choose from erm"),
        (["price", "--seeds", "7"], "radius-study has no seed 7; choose from 0, 1"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, arguments, line):
    write_recipe(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["study", *arguments]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


def test_quarters():
    rows = [{"less": x} for x in (0.0, 0.2, 1.0, 1.0, 0.5, 0.5, 0.0, 1.0)]
    assert study_drawing.by_quarter(rows) == pytest.approx([0.1, 1.0, 0.5, 0.5])
    assert math.isnan(study_drawing.by_quarter(rows[:2])[0])
    frozen = [*rows[:6], {}, {}]
    assert study_drawing.by_quarter(frozen)[:3] == pytest.approx([0.1, 1.0, 0.5])
    assert math.isnan(study_drawing.by_quarter(frozen)[3])


@pytest.mark.parametrize(
    ("values", "every", "some"),
    [
        ([1.0, 0.2, 0.1, -0.4], "reached: 4 of 4 tasks", "reached: 3 of 4 tasks"),
        ([1.0, None, 0.1, -0.4], "not run: 3 tasks that were run, of 4", "not run: 3 tasks that were run, of 4"),
        (
            [1.0, None, 0.1, -0.6],
            "not reached: 2 of 3 tasks that were run, of 4",
            "not run: 3 tasks that were run, of 4",
        ),
        ([1.0, None, -0.1, -0.6], "not reached: 2 of 3 tasks that were", "not reached: 1 of 3 tasks that were"),
    ],
)
def test_verdicts(values, every, some):
    others = [Task(str(i), x, x, x, has_asam=True) for i, x in enumerate(values)]
    found = list(verdicts(others).values())
    assert found[0].startswith(every)
    assert found[1].startswith(some)
    assert found[3] == found[0]
    assert list(verdicts([*others, Task("without auto-asam", 1.0, 1.0)]).values())[3] == found[0]


def test_every_auto_is_compared_with_constants_of_its_own_method():
    """The best mean over the seeds that all have; plain SGD is the radius 0 of both."""
    table = load_recipe(Path(__file__).resolve().parents[2] / "recipes", "radius-study")
    column = "fashion-mlp-40"
    accuracy = {"erm": 0.5, "sam-0.05": 0.7, "asam-0.5": 0.8, "auto-sam": 0.6, "auto-asam": 0.85, "capped-sam": 0.9}
    constants = [r for r in table.rows if is_fixed(table.cell(r, column, 0)) or r.startswith("asam-")]
    runs = {}
    for row in {*accuracy, *constants}:
        result = {"test_accuracy": accuracy.get(row, 0.1)}
        runs[table.cell(row, column, 0).identity] = {"result": result}
    found = next(task for task in tasks(table, runs) if task.column == column)
    assert (found.over_fixed, found.over_growth) == (pytest.approx(-10), None)
    assert found.over_fixed_asam == pytest.approx(5)
    assert not next(task for task in tasks(table, runs) if task.column == "digits-20").has_asam


def test_without_optuna_the_price_is_refused_before_any_run(tmp_path, monkeypatch, capsys):
    write_recipe(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    assert main(["study", "price", "--columns", "hard"]) == 2
    assert "pip install 'letsam[study]'" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_what_a_run_of_a_search_is_at_is_told(tmp_path, monkeypatch, capsys):
    """Loss, radius and test after an epoch; on a terminal, and in a log that was silent, the step before its end."""
    pytest.importorskip("optuna")
    write_recipe(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "PULSE", 0.0)
    monkeypatch.setattr(reproduce_command, "QUIET", -1.0)
    assert main(["study", "price", "--columns", "hard", "--seeds", "0"]) == 0
    said = capsys.readouterr().out
    assert said.count(", auto-sam, small-cnn, digits, 40 % noise, seed 0: epoch 2/2, step 3/5, ") == 1
    assert re.search(
        r", auto-sam, small-cnn, digits, 40 % noise, seed 0: epoch 2/2, loss \d.*, ρ 0.0\d*, test \d", said
    )


def test_the_price(tmp_path, monkeypatch, capsys):
    pytest.importorskip("optuna")
    write_recipe(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = ["study", "price", "--columns", "hard", "--seeds", "0"]
    assert main(command) == 0
    folder = tmp_path / "results" / "price"
    out = capsys.readouterr().out
    before = {path.name: path.read_bytes() for path in folder.glob("digits*")}
    assert len(before) == 1 + 2 + 7
    (price,) = (json.loads(path.read_text()) for path in folder.glob("price-*"))
    contenders = bill(price["trials"])
    assert [len(trials) for trials in contenders.values()] == [1, 1, 2, 2]
    assert contenders["auto-sam"][0]["passes"] == 3 * 5 * 2  # 180 images are left, 2 epochs of 5 steps
    assert all(0.05 <= trial["rho"] <= 0.5 for trial in price["trials"]["tpe"])
    rows = bill_rows(folder, "hard", 2)
    assert rows[3][:2] == ["grid search", "2"]
    assert "(1.3×)" in rows[3][2]
    assert f"{taken(contenders['grid search'])['test']:.1f} (1)" == rows[3][4]
    assert "grid search" in out
    next(folder.glob("digits-small-cnn-sam*")).unlink()  # as if it had been stopped before
    assert main(command) == 0
    assert before.keys() == {path.name for path in folder.glob("digits*")}
    (again,) = (json.loads(path.read_text()) for path in folder.glob("price-*"))
    keys = ("rho", "held_out", "test")
    assert [[t[k] for k in keys] for t in again["trials"]["tpe"]] == [
        [t[k] for k in keys] for t in price["trials"]["tpe"]
    ]
    (record,) = folder.glob("price-*")
    record.write_text(record.read_text().replace('"processor": "', '"processor": "another '))
    text = record.read_text()
    assert main(command) == 0
    assert record.read_text() == text  # nothing was made: the record is of the machine that made the runs
    for path in folder.glob("digits-small-cnn-auto*"):
        path.unlink()
    trial = max(before.keys(), key=lambda name: json.loads(before[name])["training"]["rho"] not in (None, 0.05, 0.5))
    (folder / trial).unlink()
    capsys.readouterr()
    assert main([*command, "--plan"]) == 0
    plan = capsys.readouterr().out
    assert "2 runs" in plan
    assert "auto-sam" in plan
    assert "TPE, trial 7" in plan
