"""letsam reproduce: every recipe on two tiny batches; the command on a small recipe of its own; bad input."""

import json
import math
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from letsam.cli import main
from letsam.experiments import loop, plan, reproduce, reproduce_command, tables
from letsam.experiments.data.glue import GLUE
from letsam.experiments.data.hashes import label_hash, pixel_hash
from letsam.experiments.data.images import Images, load
from letsam.experiments.folder import locked
from letsam.experiments.loop import Run
from letsam.experiments.plan import Planned
from letsam.experiments.recipe import Figure, list_recipes, load_recipe
from letsam.experiments.reproduce import run_all
from letsam.experiments.selection import chosen_device
from letsam.experiments.training import TEXT
from small_glue import save_deberta, small_sets
from small_text import copy_pairs

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
CLASSES = {"cifar10": 10, "cifar100": 100, "imagenet": 1000, "fashion-mnist": 10, "digits": 10}
SMALL = ("resnet18", "resnet18-20", "resnet50", "cifar10", "sam", "asam", "digits-0", "transformer", "mrpc")
RECIPE = """
title = "Digits"
source = "a test"
seeds = [0, 1]
[train]
data = "digits"
model = "small-cnn"
epochs = 2
batch = 40
lr = 0.03
images = 200
precision = "float32"
[columns]
plain = { }
[rows]
erm = { method = "erm" }
sam = { method = "sam" }
"""


def tiny_cells():
    """Every row in the smallest column, every column with the first row that perturbs."""
    for name in list_recipes(FOLDER):
        table = load_recipe(FOLDER, name)
        if isinstance(table, Figure):  # its cells are those of tables
            continue
        small = next(column for column in SMALL if column in table.columns)
        one = "sam" if "sam" in table.rows else next(iter(table.rows))
        pairs = [(row, small) for row in table.rows if table.has(row, small)] + [
            (one, column) for column in table.columns if column != small
        ]
        yield from ((name, row, column) for row, column in pairs)


def random_images(data, n):
    torch.manual_seed(0)
    size = {"imagenet": 64, "fashion-mnist": 28, "digits": 8}.get(data, 32)
    channels = 1 if data == "digits" else 3
    pixels = torch.randint(0, 256, (n, channels, size, size), dtype=torch.uint8)
    labels = torch.randint(0, CLASSES[data], (n,))
    return Images(pixels, labels, CLASSES[data], (0.5,) * channels, (0.25,) * channels)


@pytest.mark.parametrize(("name", "row", "column"), list(tiny_cells()))
def test_every_recipe_on_two_tiny_batches(name, row, column, tmp_path):
    shortest = load_recipe(FOLDER, name).cell(row, column, 0).scaled(1e-9)
    training = replace(shortest, batch=2, precision="float32")
    if training.data in TEXT:
        run = Run(replace(training, batch=16), *copy_pairs((4, 2, 2), longest=2), "cpu")  # two rows of at most 8 tokens
    elif training.data in GLUE:
        pytest.importorskip("transformers")
        n = 4 if training.validation == "training" else 6
        checkpoint = save_deberta(tmp_path / "deberta")
        run = Run(replace(training, model=checkpoint), *small_sets(tmp_path, training.data, n, 2), "cpu")
    else:
        images = 4 if training.validation == "training" else 6  # of which one is held out
        run = Run(training, random_images(training.data, images), random_images(training.data, 2), "cpu")
    result = run.epoch()
    assert run.steps in (2, 3)
    assert result["skipped"] == 0
    assert math.isfinite(result["train_loss"])


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "recipes" / "small").mkdir(parents=True)
    (tmp_path / "recipes" / "small" / "recipe.toml").write_text(RECIPE)
    (tmp_path / "recipes" / "small" / "paper.toml").write_text("[sam]\nplain = [90.0, 0.5]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_runs_their_records_and_the_table(place, capsys):
    assert main(["reproduce", "small", "--rows", "sam"]) == 0
    out = capsys.readouterr().out
    records = [json.loads(p.read_text()) for p in sorted((place / "results" / "reproduction").glob("*.json"))]
    assert [r["training"]["seed"] for r in records] == [0, 1]
    assert all(r["training"]["method"] == "sam" and len(r["rows"]) == 2 and r["environment"]["torch"] for r in records)
    assert all(r["data"]["train"]["pixels_sha256"] == pixel_hash(load("digits").images) for r in records)
    assert all(r["data"]["test"]["labels_sha256"] == label_hash(load("digits", split="test").labels) for r in records)
    assert not any("noise" in r["data"] or "partial" in r["data"] for r in records)
    mean = 50 * sum(r["result"]["test_accuracy"] for r in records)
    assert f"{mean:.2f}" in out
    assert f"{mean - 90:+.2f}" in out
    assert "90.00 ± 0.50" in out
    assert "not run" in out
    before = {p: p.stat().st_mtime_ns for p in (place / "results" / "reproduction").iterdir()}
    assert main(["reproduce", "small", "--rows", "sam"]) == 0
    assert before == {p: p.stat().st_mtime_ns for p in (place / "results" / "reproduction").iterdir()}


def test_where_an_epoch_is_is_told_before_it_ends(place, capsys, monkeypatch):
    monkeypatch.setattr(loop, "PULSE", 0.0)
    command = ["reproduce", "small", "--rows", "erm", "--seeds", "0"]
    assert main([*command, "--scale", "0.5"]) == 0
    assert "step" not in capsys.readouterr().out  # a log has a line after 30 silent seconds alone
    monkeypatch.setattr(reproduce_command, "QUIET", -1.0)
    assert main(command) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if "step" in line]
    assert [line.split(": ")[1].split(",")[:2] for line in said] == [
        [f"epoch {epoch}/2", f" step {step}/5"] for epoch in (1, 2) for step in (1, 2, 3, 4)
    ]
    assert said[1].endswith("min left")


def test_two_processes_share_the_work(place):
    command = [sys.executable, "-m", "letsam", "reproduce", "small"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    out = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(list((place / "results" / "reproduction").glob("*.json"))) == 4
    assert sum(text.count("epoch 2/2") for text in out) == 4  # no run was made twice


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_the_minutes_are_not_for_runs_of_another_process(place, capsys, monkeypatch, when):
    """Of four runs two fit, and of those that another process is at, none: the others take their place."""
    monkeypatch.setattr(plan.Speeds, "minutes", lambda *_: (1.0, True))
    table = load_recipe(place / "recipes", "small")
    first = [table.cell(row, "plain", 0) for row in ("erm", "sam")]
    places = [place / "runs" / "reproduction" / training.identity for training in first]
    for folder in places:
        folder.mkdir(parents=True)
    if when == "meanwhile":
        monkeypatch.setattr(reproduce, "is_busy", lambda _: False)  # both looked at the same moment
    with locked(places[0]), locked(places[1]):
        assert main(["reproduce", "small", "--minutes", "2.5"]) == 0
    assert capsys.readouterr().out.count("another process is at it") == (2 if when == "meanwhile" else 0)
    found = [json.loads(path.read_text()) for path in (place / "results" / "reproduction").glob("*.json")]
    assert sorted((r["training"]["method"], r["training"]["seed"]) for r in found) == [("erm", 1), ("sam", 1)]


def test_a_forked_process_does_not_keep_the_lock(tmp_path):
    context = multiprocessing.get_context("fork")
    alive = context.Event()
    with locked(tmp_path):
        child = context.Process(target=lambda: (alive.set(), time.sleep(60)))
        child.start()
        assert alive.wait(60)
    try:
        with locked(tmp_path):
            assert child.is_alive()
    finally:
        child.kill()
        child.join()


def test_a_damaged_record_is_named_and_not_overwritten(place, capsys):
    assert main(["reproduce", "small", "--seeds", "0"]) == 0
    bad, good = sorted((place / "results" / "reproduction").glob("*.json"))
    bad.write_text(bad.read_text()[:-20])
    before = bad.read_bytes()
    capsys.readouterr()
    assert main(["reproduce", "small", "--seeds", "0"]) == 0
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert str(bad.relative_to(place)) in said.err
    assert f"there is a record in {bad.relative_to(place)}; move it away" in said.out
    assert bad.read_bytes() == before
    assert f"{100 * json.loads(good.read_text())['result']['test_accuracy']:.2f} (1)" in said.out


def test_a_run_that_another_process_has_made_meanwhile_is_nothing_to_move_away(place):
    assert main(["reproduce", "small", "--rows", "erm", "--seeds", "0"]) == 0
    training, said = load_recipe(place / "recipes", "small").cell("erm", "plain", 0), []
    planned = Planned("small", "erm", "plain", training, 1.0, True)
    folders = (place / parent / "reproduction" for parent in ("runs", "results"))
    run_all([planned], pytest.fail, *folders, pytest.fail, said.append)
    assert said == [f"{training}: another process has made it"]


def test_a_shortened_run_is_labelled_and_kept_apart(place, capsys):
    assert main(["reproduce", "small", "--scale", "0.5", "--seeds", "0"]) == 0
    assert "shortened to 50 % of the epochs" in capsys.readouterr().out
    assert main(["reproduce", "small", "--plan"]) == 0
    assert "4 runs" in capsys.readouterr().out


def test_the_plan_needs_neither_data_nor_a_gpu(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LETSAM_DATA", str(tmp_path / "nothing"))
    assert main(["reproduce", "cifar10", "--plan", "--recipes", str(FOLDER)]) == 0
    assert "132 runs" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["big"], "no recipe is called 'big'"),
        (["small", "--rows", "sma"], "small has no row 'sma'; choose from erm, sam"),
        (["small", "--columns", "x"], "small has no column 'x'; choose from plain"),
        (["small", "--seeds", "7"], "small has no seed 7; choose from 0, 1"),
        (["small", "--scale", "2"], "--scale is 2.0; give a number above 0, at most 1"),
        (["small", "--minutes", "0"], "--minutes is 0; give a positive number"),
        (["small", "--minutes", "0.00001"], "nothing fits into --minutes 1e-05; the shortest takes"),
        (["small", "--device", "gpu"], "--device is 'gpu'; give cpu, cuda, or cuda:N"),
        (["small", "--device", "cuda:x"], "--device is 'cuda:x'; give cpu, cuda, or cuda:N"),
        (["small", "--device", "mps"], "--device is 'mps'; give cpu, cuda, or cuda:N"),
        (["small", "--device", "cuda"], "there is no CUDA device; use --device cpu"),
        (["small", "--results", "/dev/null"], "/dev/null/reproduction cannot be made: Not a directory; choose another"),
        (["small", "--work", "/dev/null"], "Not a directory; choose another place with --work"),
        (["small", "--recipes", "nowhere"], "no recipes in nowhere; run this in a clone of letsam"),
    ],
)
def test_bad_input_is_one_line(place, capsys, arguments, line):
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a CUDA device, and what is told is that there is none")
    assert main(["reproduce", *arguments]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1
    assert not list(place.glob("results/*/*"))


def test_a_gpu_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [chosen_device(x) for x in (None, "cuda", "cuda:1", "cpu")] == ["cuda", "cuda", "cuda:1", "cpu"]
    with pytest.raises(ValueError, match="--device is cuda:2, and the last GPU is cuda:1; give that or a smaller"):
        chosen_device("cuda:2")


def test_missing_data_is_told_before_anything_is_trained(place, capsys):
    (place / "recipes" / "small" / "recipe.toml").write_text(
        RECIPE.replace('"digits"', '"cifar10"').replace("small-cnn", "resnet32")
    )
    assert main(["reproduce", "small", "--data", str(place / "none")]) == 2
    error = capsys.readouterr().err
    assert "run letsam data cifar10 first" in error
    assert error.count("\n") == 1
    assert not (place / "results").exists()


def test_cells_without_their_data_are_skipped_and_told_at_once(place, capsys):
    columns = '[columns]\nplain = { }\nother = { data = "cifar10", model = "resnet32" }'
    (place / "recipes" / "small" / "recipe.toml").write_text(RECIPE.replace("[columns]\nplain = { }", columns))
    command = ["reproduce", "small", "--seeds", "0", "--data", str(place / "none")]
    assert main([*command, "--plan"]) == 0
    capsys.readouterr()
    assert main(command) == 1
    said = capsys.readouterr()
    first = said.out.splitlines()[0]
    assert first.startswith("skipped, 2 runs (erm in other, sam in other): ")
    assert "run letsam data cifar10 first" in first
    assert said.err == "letsam: runs were skipped for lack of cifar10; get it, and run this again\n"
    assert len(list((place / "results" / "reproduction").glob("digits-*.json"))) == 2
    assert "not run" in said.out


def test_a_table_with_our_cells(place):
    assert main(["reproduce", "small", "--rows", "sam"]) == 0
    head, erm, sam = tables.reproduction(place / "recipes", place / "results" / "reproduction", "small")
    assert head == ["", "plain"]
    assert erm == ["erm", "not run"]
    assert "(2)**, paper 90.00 ± 0.50, " in sam[1]
    assert "Runs: 2 of 4." in tables.headline(place / "recipes", place / "results" / "reproduction", "small")


def test_published_cells_of_something_else(place):
    paper = place / "recipes" / "small" / "paper.toml"
    paper.write_text(f'label = "a larger network"\n{paper.read_text()}')
    assert main(["reproduce", "small", "--rows", "sam"]) == 0
    where = place / "recipes", place / "results" / "reproduction", "small"
    assert tables.reproduction(*where)[2][1].endswith("(2)**, paper 90.00 ± 0.50")
    assert tables.headline(*where).endswith("The paper's cells are of a larger network.")
