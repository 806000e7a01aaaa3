"""letsam measure on finished runs: the records, going on after a kill, what is told, bad input."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from made_records import run_record
from measured_runs import COMMAND, ENVIRONMENT, commands_in
from torch.nn.functional import cross_entropy

from letsam import measure
from letsam.cli import main
from letsam.experiments import models
from letsam.experiments.checkpoint import load_checkpoint, save_checkpoint
from letsam.experiments.data.augment import normalise
from letsam.experiments.data.images import load
from letsam.experiments.measures import SEED, Batches
from letsam.experiments.recipe import Training, load_recipe
from letsam.experiments.source import parts

SMALL = ["--points", "5", "--images", "100"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return commands_in(tmp_path_factory.mktemp("trained"), ["reproduce", "small", "--seeds", "0"])


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def found(place):
    records = (json.loads(path.read_text()) for path in sorted((place / "results" / "measures").glob("*.json")))
    return {record["training"]["method"]: record for record in records}


def by_hand(place, record):
    """The model of a record and its training loss on the first 100 images, without the command."""
    training = Training(**record["training"])
    model = models.create("small-cnn", 10)
    checkpoint = place / "runs" / "reproduction" / training.identity / f"{training.identity}.safetensors"
    model.load_state_dict(load_checkpoint(checkpoint)["model"])
    images, *_ = parts(training, load("digits"))
    batch = normalise(images.images[:100], images), images.labels[:100]
    return model, measure.Objective(model, cross_entropy, [batch])


def test_a_record_has_what_the_library_measures(place, capsys):
    assert main(["measure", "small", "--rows", "sam", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "1 of 2 runs have no record yet" in out
    assert out.count("measured") == 1
    record = found(place)["sam"]
    assert (record["kind"], record["environment"]["device"]) == ("letsam measure", "cpu")
    assert record["command"] == "letsam measure small --rows sam --columns plain --seeds 0 --points 5 --images 100"
    assert record["settings"]["points"] == 5
    assert record["environment"]["torch"] == torch.__version__
    (_, objective), values = by_hand(place, record), record["values"]
    assert values["m_sharpness"] == pytest.approx(measure.m_sharpness(objective, 0.05).value, rel=1e-4)
    assert values["training_loss"] == pytest.approx(objective.loss(), rel=1e-5)
    assert values["profile"]["values"][0][4] == values["surface"]["values"][2][2]
    assert values["top_eigenvalue"] > 0
    assert values["trace_error"] > 0


def test_all_runs_are_looked_at_along_the_same_axes_and_directions(place):
    assert main(["measure", "loss-landscape", *SMALL]) == 0
    assert len(found(place)) == 3
    for record in found(place).values():
        model, objective = by_hand(place, record)
        surface = record["values"]["surface"]
        assert surface["axes"] == [[-1.0, -0.5, 0.0, 0.5, 1.0]] * 2
        assert surface["values"][2][2] == pytest.approx(objective.loss(), rel=1e-5)
        with torch.no_grad():
            for p, x, y in zip(model.parameters(), *measure.directions(model, SEED), strict=True):
                p.add_(x, alpha=-0.5).add_(y, alpha=1.0)
        assert surface["values"][4][1] == pytest.approx(objective.loss(), rel=1e-4)


def test_labels_are_those_that_were_trained_on(place):
    path = place / "recipes" / "small" / "recipe.toml"
    path.write_text(path.read_text().replace("plain = { }", "plain = { noise = 0.8 }"))
    for command in (["reproduce"], ["measure", *SMALL]):
        assert main([command[0], "small", "--rows", "erm", "--seeds", "0", *command[1:]]) == 0
    record = found(place)["erm"]
    assert record["values"]["training_loss"] == pytest.approx(by_hand(place, record)[1].loss(), rel=1e-5)


def test_what_is_measured_is_not_measured_again(place, capsys):
    assert main(["measure", "small", "--rows", "erm", *SMALL]) == 0
    before = {p: p.stat().st_mtime_ns for p in (place / "results" / "measures").iterdir()}
    capsys.readouterr()
    assert main(["measure", "small", "--rows", "erm", "--points", "7"]) == 0
    assert "measured already; delete results/measures/" in capsys.readouterr().out
    assert before == {p: p.stat().st_mtime_ns for p in (place / "results" / "measures").iterdir()}


def test_a_missing_or_wrong_checkpoint_is_a_line_and_the_rest_goes_on(place, capsys):
    runs = {p.stem: p for p in (place / "runs" / "reproduction").glob("*/*.safetensors")}
    names = {
        json.loads(p.read_text())["training"]["method"]: p for p in (place / "results/reproduction").glob("*.json")
    }
    identity = {method: json.loads(p.read_text())["identity"] for method, p in names.items()}
    runs[identity["erm"]].unlink()
    record = json.loads(names["sam"].read_text())
    names["sam"].write_text(json.dumps(record | {"weights": "0"}))
    assert main(["measure", "small", "--seeds", "0", *SMALL]) == 1
    said = capsys.readouterr()
    out = said.out.splitlines()
    assert said.err == "letsam: 2 of 3 runs could not be measured; their lines above say why\n"
    assert any("erm, small-cnn, digits, seed 0: no checkpoint in runs/reproduction/" in line for line in out)
    assert any("sam, small-cnn" in line and "other weights than the record of its run" in line for line in out)
    for method in ("erm", "sam"):
        again = f"move {names[method].relative_to(place)} away, and letsam reproduce small makes the run again"
        (line,) = (line for line in out if line.endswith(again))
        assert line.startswith(f"{method}, ")
    assert set(found(place)) == {"lets-sam"}


@pytest.mark.parametrize("content", [["a list"], {"rows": []}, {"model": {"x": torch.zeros(2)}}], ids=str)
def test_a_checkpoint_of_something_else_is_a_line_and_the_rest_goes_on(place, capsys, content):
    path = checkpoint_of(place, "sam")
    save_checkpoint(path, content)
    assert main(["measure", "small", "--seeds", "0", "--rows", "erm", "sam", *SMALL]) == 1
    line = f"sam, small-cnn, digits, seed 0: {path.relative_to(place)} has no weights of small-cnn; move results/"
    assert line in capsys.readouterr().out
    assert set(found(place)) == {"erm"}


def test_a_run_that_diverged_has_nothing_in_place_of_numbers(place):
    path = checkpoint_of(place, "sam")
    state = load_checkpoint(path)
    state["model"] = {name: x * torch.nan if x.is_floating_point() else x for name, x in state["model"].items()}
    save_checkpoint(path, state)
    model = models.create("small-cnn", 10)
    model.load_state_dict(state["model"])
    (file,) = (place / "results" / "reproduction").glob(f"*-{path.stem}.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"weights": models.digest(model)}))
    assert main(["measure", "small", "--seeds", "0", "--rows", "erm", "sam", *SMALL]) == 0
    values = found(place)["sam"]["values"]
    assert [values[name] for name in ("m_sharpness", "top_eigenvalue", "trace", "training_loss")] == [None] * 4
    assert values["surface"]["values"] == [[None] * 5] * 5
    assert found(place)["erm"]["values"]["trace"] is not None


def checkpoint_of(place, method):
    records = (json.loads(path.read_text()) for path in (place / "results/reproduction").glob("*.json"))
    (identity,) = (record["identity"] for record in records if record["training"]["method"] == method)
    return place / "runs" / "reproduction" / identity / f"{identity}.safetensors"


def test_a_killed_measure_goes_on_to_the_same_numbers(place, tmp_path):
    arguments = ["measure", "small", "--rows", "sam", "--seeds", "0", "--points", "31", "--images", "100"]
    shutil.copytree(place / "runs", tmp_path / "whole")
    process = subprocess.Popen([*COMMAND, *arguments], env=ENVIRONMENT, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 90
    while not (rows := sorted(place.glob("runs/reproduction/*/measure-*/surface*/row-*.json"))):
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not found(place)
    written = {row: row.stat().st_mtime_ns for row in rows}
    assert len(rows) < 31

    assert main(arguments) == 0
    went_on = found(place)["sam"]["values"]
    assert written == {row: row.stat().st_mtime_ns for row in rows}
    shutil.rmtree(place / "results" / "measures")
    assert main([*arguments, "--work", str(tmp_path / "whole")]) == 0
    assert went_on == found(place)["sam"]["values"]


def test_shortened_runs_are_measured_with_their_scale(place, capsys):
    assert main(["reproduce", "small", "--rows", "erm", "--seeds", "0", "--scale", "0.5"]) == 0
    assert main(["measure", "small", "--rows", "erm", "--seeds", "0", "--scale", "0.5", *SMALL]) == 0
    assert found(place)["erm"]["training"]["epochs"] == 2
    assert "--scale 0.5" in found(place)["erm"]["command"]


def test_it_needs_no_drawing_library(place):
    """The machines that train may have neither matplotlib nor plotly."""
    code = "import sys; sys.modules.update(matplotlib=None, plotly=None)\n"
    code += "from letsam.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["measure", "small", "--rows", "erm", "--seeds", "0", *SMALL]
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_batches_are_the_first_images_normalised():
    images = load("digits")
    found = list(Batches(images, 25, 10))
    assert [len(y) for _, y in found] == [10, 10, 5]
    torch.testing.assert_close(torch.cat([x for x, _ in found]), normalise(images.images[:25], images))
    assert sum(len(y) for _, y in Batches(images, 10**6, 300)) == len(images)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["big"], "no recipe is called 'big'"),
        (["small", "--rows", "x"], "small has no row 'x'; choose from erm, sam, lets-sam"),
        (["small", "--points", "4"], "--points is 4; give an odd number from 3"),
        (["small", "--images", "0"], "--images is 0; give at least 1"),
        (["small", "--seeds", "1"], "none of these runs has a record in results: letsam reproduce small first"),
    ],
)
def test_bad_input_is_one_line(place, capsys, arguments, line):
    assert main(["measure", *arguments]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1
    assert not (place / "results" / "measures").exists()


def test_missing_data_is_told_before_anything_is_measured(place, capsys):
    recipe = place / "recipes" / "small" / "recipe.toml"
    columns = 'plain = { }\nother = { data = "cifar10", model = "resnet32" }'
    recipe.write_text(recipe.read_text().replace("plain = { }", columns))
    table = load_recipe(place / "recipes", "small")
    for row in ("erm", "sam"):  # two records of a set that is not here
        run = table.cell(row, "other", 0)
        record = run_record(run, [60.0] * run.epochs)
        (place / "results" / "reproduction" / f"{row}.json").write_text(json.dumps(record))
    command = ["measure", "small", "--rows", "erm", "sam", "--data", str(place / "none"), *SMALL]
    assert main([*command, "--columns", "other"]) == 2
    assert "run letsam data cifar10 first" in capsys.readouterr().err
    assert main(command) == 1
    said = capsys.readouterr()
    assert "skipped, 2 runs (erm in other, sam in other): " in said.out.splitlines()[1]
    assert "skipped for lack of cifar10" in said.err
    assert set(found(place)) == {"erm", "sam"}
