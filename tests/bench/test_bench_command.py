"""`letsam bench` from end to end on a small network: record, table, chart, the record drawn again."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from sam_class import SOURCE

from letsam.bench.rows import KEYS
from letsam.cli import main

SMALL = ("--model", "small-cnn", "--batch", "8", "--steps", "4", "--warmup", "1", "--device", "cpu")
METHODS = ("erm", "sam", "esam", "lets-sam", "auto-sam:every=2", "le-sam")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of a run as a process of its own, with two peers, one of which fails."""
    root = tmp_path_factory.mktemp("bench")
    (root / "other.py").write_text(SOURCE)
    peers = ("--peer", "other.py:SAM", "--peer", "other.py:Broken")
    command = [sys.executable, "-m", "letsam", "bench", *SMALL, *peers, "--methods", *METHODS, "--out", "a/b.json"]
    return root, subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def record(done):
    return json.loads((done[0] / "a" / "b.json").read_text())


def rows_of(record, **wanted):
    return {row["name"]: row for row in record["rows"] if all(row[key] == value for key, value in wanted.items())}


def test_it_ends_well_and_shows_a_table(done):
    _, process = done
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    for text in (
        "ms/step",
        "quartiles",
        "vs",
        "Ratios:",
        "two passes",
        "other.SAM",
        "auto-sam:every=2",
        "6,138 parameters",
    ):
        assert text in process.stdout
    assert "failed: other.Broken, eager: RuntimeError: the second step fails" in process.stdout
    assert "Record: a/b.json\nChart: a/b.png\n" in process.stdout


def test_the_record_says_what_was_timed(record):
    assert (record["kind"], record["format"]) == ("letsam bench", 1)
    assert record["model"] == {"parameters": 6138, "tensors": 8}
    assert record["settings"]["methods"] == list(METHODS)
    assert record["settings"]["modes"] == ["eager"]
    assert record["settings"]["dtype"] == "float32"
    assert record["command"].startswith("letsam bench --model small-cnn --batch 8 --methods erm sam ")
    assert "--peer other.py:SAM --peer other.py:Broken" in record["command"]
    for key in ("python", "torch", "letsam", "device", "threads", "tf32_matmul", "pytorch_optimizer", "revision"):
        assert key in record["environment"]
    assert all(tuple(row) == KEYS for row in record["rows"])


def test_everybody_has_a_row(record):
    others = ["torch SGD", "two passes", "pytorch_optimizer", "other.SAM", "other.Broken"]
    if record["environment"]["pytorch_optimizer"] is None:
        others.remove("pytorch_optimizer")
        assert any("pip install pytorch_optimizer" in note for note in record["notes"])
    assert [row["name"] for row in record["rows"]] == [*others, *METHODS]
    for row in record["rows"]:
        if row["error"] is None:
            assert 0 < row["q1_ms"] <= row["median_ms"] <= row["q3_ms"]
            assert row["ms"] > 0
            assert row["mean_ms"] > 0
            assert 0 < row["loss"] < 10
            assert row["peak_mib"] is None


def test_passes_and_relations(record):
    others, ours = rows_of(record, mode="eager"), rows_of(record, kind="letsam")
    assert (others["torch SGD"]["passes"], others["two passes"]["passes"], others["other.SAM"]["passes"]) == (1, 2, 2)
    passes = {name: row["passes"] for name, row in ours.items()}
    assert passes == {"erm": 1, "sam": 2, "esam": 2, "lets-sam": 4, "auto-sam:every=2": 2.5, "le-sam": 2}
    assert "within the round" in record["ratios"]
    assert ours["sam"]["relative"] > 0
    assert ours["sam"]["relative_to"] == "erm, eager"
    assert others["other.SAM"]["relative_to"] == "torch SGD, eager"
    two = {row["name"] for row in record["rows"] if row["relative_to_two_passes"] is not None}
    assert two - {"pytorch_optimizer"} == {"other.SAM", "sam", "esam", "le-sam"}
    assert ours["sam"]["speedups"]["other.SAM"] > 0
    assert "other.Broken" not in ours["sam"]["speedups"]
    assert others["other.Broken"]["ms"] is None


def test_the_same_training_gives_the_same_loss(record):
    """Every row trains the same model on the same batches: what is the same method ends at the same loss."""
    rows = rows_of(record, mode="eager")
    assert rows["erm"]["loss"] == pytest.approx(rows["torch SGD"]["loss"], rel=1e-5)
    assert rows["sam"]["loss"] == pytest.approx(rows["other.SAM"]["loss"], rel=1e-3)  # it moves BatchNorm's statistics
    assert rows["sam"]["loss"] != rows["erm"]["loss"]


def test_the_chart_is_an_image(done):
    with Image.open(done[0] / "a" / "b.png") as image:
        image.load()
        assert image.format == "PNG"
        assert min(image.size) > 300
        assert len(image.convert("RGB").getcolors(1 << 24)) > 10


def test_a_record_is_drawn_again(done, record, capsys, monkeypatch):
    monkeypatch.chdir(done[0])
    before = (done[0] / "a" / "b.png").read_bytes()
    (done[0] / "a" / "b.png").unlink()
    assert main(["bench", "--show", "a/b.json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert done[1].stdout.endswith(out)  # the table, without the progress
    assert (done[0] / "a" / "b.png").read_bytes() == before
    assert main(["bench", "--show", "a/b.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == record


def test_json_is_the_only_thing_on_stdout(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["bench", *SMALL, "--methods", "sam", "--base", "adamw", "--dtype", "bfloat16", "--json"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert record == json.loads((tmp_path / "bench.json").read_text())
    assert record["rows"][0]["name"] == "torch AdamW"
    assert rows_of(record, kind="letsam")["sam"]["relative_to"] == "torch AdamW, eager"  # no erm to stand beside
    assert "rounds" in err
    assert main(arguments) == 0  # a record of its own is replaced


def test_without_matplotlib_there_is_no_chart(done, tmp_path, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    copy = tmp_path / "b.json"
    copy.write_bytes((done[0] / "a" / "b.json").read_bytes())
    assert main(["bench", "--show", str(copy)]) == 0
    assert "No chart: matplotlib is missing" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["b.json"]


def test_without_the_package_a_line_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    assert main(["bench", *SMALL, "--methods", "erm"]) == 0
    assert "note: pytorch_optimizer is not installed" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "bench.json").read_text())["rows"]) == 3


def test_nothing_timed_is_a_failure_and_keeps_the_record(tmp_path, capsys, monkeypatch):
    import letsam.bench.measure as measure

    def fails(*_):
        raise RuntimeError("no luck")

    monkeypatch.chdir(tmp_path)
    assert main(["bench", *SMALL, "--methods", "erm"]) == 0
    before = (tmp_path / "bench.json").read_text()
    everybody = [measure.Contender("a", "plain", "eager", fails)]
    monkeypatch.setattr(measure, "contenders", lambda _: (everybody, []))
    assert main(["bench", *SMALL]) == 1
    assert "nothing could be timed; a, eager: RuntimeError: no luck" in capsys.readouterr().err
    assert (tmp_path / "bench.json").read_text() == before


def test_a_table_in_a_pipe_is_not_cut():
    from letsam.bench.record import read_record
    from letsam.bench.table import bench_table
    from letsam.terminal import console_on

    pipe = io.StringIO()
    console_on(pipe).print(bench_table(read_record(Path(__file__).parents[2] / "results" / "bench" / "resnet18.json")))
    assert "captured" in pipe.getvalue()
    assert "…" not in pipe.getvalue()


def test_a_terminal_gets_a_bar():
    from rich.console import Console

    from letsam.bench.display import display_for

    screen = Console(file=io.StringIO(), force_terminal=True, width=100)
    with display_for(screen) as display:
        display.at(3, 7, "sam, eager")
        display.ended("said already")
        display.note("worth a line")
    assert "3/7 sam, eager" in screen.file.getvalue()
    assert "worth a line" in screen.file.getvalue()
    assert "said already" not in screen.file.getvalue()
