"""Wrong input: one clear line, exit code 2, nothing timed, nothing written."""

import json

import pytest
from sam_class import SOURCE

from letsam.bench import measure
from letsam.cli import main


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "Stage", None)  # whoever comes as far as this fails


def fails(capsys, *arguments):
    assert main(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("letsam: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--model", "resnet81"], "did you mean resnet18?"),
        (["--model", "llama"], "choose from resnet18, wrn28-10"),
        (["--model", "vit-s:widht=3"], "widht"),
        (["--model", "vit-s:width=30,heads=4"], "4 heads"),
        (["--model", "vit-s:heads=0"], "vit-s:heads=0"),
        (["--batch", "1"], "--batch is 1; give at least 2"),
        (["--steps", "0"], "--steps is 0; give at least 1"),
        (["--warmup", "0"], "--warmup is 0; give at least 1"),
        (["--steps", "few"], "steps"),
        (["--methods", "sma"], "sam"),
        (["--methods", "sam:rhoo=1"], "rho"),
        (["--methods", "sam:rho"], "sam:rho=0.1"),
        (["--methods", "sam", "sam"], "--methods: sam is given twice"),
        (["--methods"], "--methods"),
        (["--base", "lion"], "sgd"),
        (["--dtype", "float16"], "bfloat16"),
        (["--modes", "captured", "--device", "cpu"], "--modes captured needs a CUDA device"),
        (["--modes", "eager", "compiled", "--device", "cpu"], "use eager"),
        (["--modes", "fast"], "captured"),
        (["--modes", "eager", "eager"], "twice"),
        (["--device", "tpu"], "choose from cpu, cuda, cuda:N"),
        (["--device", "cuda:"], "choose from cpu, cuda, cuda:N"),
        (["--device", "cuda:99"], "use cpu"),
        (["--out", "bench.txt"], "JSON file"),
        (["--show", "nothing.json"], "no file nothing.json"),
        (["--show", "nothing.json", "--steps", "3"], "drop the other options"),
        (["--frobnicate"], "frobnicate"),
    ],
)
def test_one_line_and_nothing_written(arguments, hint, capsys, tmp_path):
    assert hint in fails(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("peer", "hint"),
    [
        ("sam.py", "such as sam.py:SAM"),
        ("nothing.py:SAM", "there is no file nothing.py"),
        ("peer.py:SMA", "has no class SMA"),
        ("peer.py:number", "has no class number"),
        ("peer.py:Unfinished", "has no method second_step"),
        ("bad.py:SAM", "bad.py cannot be imported: ZeroDivisionError"),
        ("script.py:SAM", "script.py cannot be imported: SystemExit: 2"),
        ("notes.txt:SAM", "ends in .py"),
    ],
)
def test_peers_that_cannot_be_used(peer, hint, capsys, tmp_path):
    (tmp_path / "peer.py").write_text(SOURCE)
    (tmp_path / "bad.py").write_text("1 / 0")
    (tmp_path / "script.py").write_text("import sys; sys.exit(2)")
    (tmp_path / "notes.txt").write_text("SAM")
    assert hint in fails(capsys, "--peer", peer)


def test_peers_of_one_name(capsys, tmp_path):
    (tmp_path / "a").mkdir()
    for path in ("peer.py", "a/peer.py"):
        (tmp_path / path).write_text(SOURCE)
    assert "twice" in fails(capsys, "--peer", "peer.py:SAM", "--peer", "peer.py:SAM")
    assert "rename" in fails(capsys, "--peer", "peer.py:SAM", "--peer", "a/peer.py:SAM")


@pytest.mark.parametrize("content", ["precious", "{}", '{"kind": "letsam bench", "format": 1}', "[1]"])
def test_other_files_are_left_alone(content, capsys, tmp_path):
    (tmp_path / "bench.json").write_text(content)
    assert "bench.json exists and is no record" in fails(capsys)
    assert "bench.json" in fails(capsys, "--show", "bench.json")
    assert (tmp_path / "bench.json").read_text() == content


def test_a_picture_without_a_record_is_left_alone(capsys, tmp_path):
    (tmp_path / "bench.png").write_text("precious")
    assert "bench.png exists, and no record beside it" in fails(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["bench.png"]


def test_a_place_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert "cannot write file/a.json" in fails(capsys, "--out", "file/a.json")
    (tmp_path / "folder.json").mkdir()
    assert "folder.json exists" in fails(capsys, "--out", "folder.json")


def test_a_damaged_record_is_not_drawn(capsys, tmp_path):
    parts = {"settings": {}, "environment": {}, "model": {}, "notes": [], "command": "", "rows": [{"name": "sam"}]}
    (tmp_path / "a.json").write_text(json.dumps({"kind": "letsam bench", "format": 1, **parts}))
    assert "damaged" in fails(capsys, "--show", "a.json")
