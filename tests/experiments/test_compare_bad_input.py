"""Wrong input: one clear line, exit code 2, nothing written, nothing lost."""

import io
import json
from pathlib import Path

import pytest

from letsam.cli import main
from letsam.experiments import folder as folders
from letsam.experiments.config import Config


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("letsam: ")
    assert err.count("\n") == 1
    return err


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LETSAM_DATA", str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--epochs", "-1"], "--epochs"),
        (["--epochs", "many"], "epochs"),
        (["--noise", "1.5"], "between 0 and 1"),
        (["--methods", "sma"], "sam"),
        (["--methods", "sam:rhoo=0.1"], "rho"),
        (["--methods", "sam:rho=-0.1"], "rho"),
        (["--methods", "gsam:alpha=nan"], "alpha is nan; give a finite number"),
        (["--methods", "sam:rho"], "sam:rho=0.1"),
        (["--methods", "sam", "sam"], "twice"),
        (["--seeds", "0"], "--seeds"),
        (["--base", "lion"], "sgd"),
        (["--batch-size", "5000"], "900"),
        (["--workers", "0"], "--workers"),
        (["--name", "a/b"], "--name"),
        (["--name", ".."], "--name"),
        (["--resume"], "--name"),
        (["--resume", "--name", "nothing"], "no run folder"),
        (["--frobnicate"], "frobnicate"),
        (["--data", "cifar10"], "run letsam data cifar10 first"),
        (["--data", "cifar10", "--model", "small-cnn"], "small-cnn does not read cifar10"),
        (["--images", "5000"], "1000"),
        (["--device", "tpu"], "--device is 'tpu'"),
    ],
)
def test_one_line_and_nothing_written(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert hint in fails(capsys, "compare", *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["describe", "sma"], "sam"),
        (["report", "nothing"], "nothing"),
        (["frobnicate"], "frobnicate"),
        (["describe"], "Missing from letsam describe: STR A method of letsam list. (see letsam describe --help)"),
        (["reproduce"], "A folder of recipes/, such as cifar10, label-noise or iwslt14. (see letsam reproduce --help)"),
        (["study", "nope"], "Expected one of ('radius', 'price'). (see letsam study --help)"),
        (["compare", "--data", "nope"], "one of ('digits', 'fashion-mnist', 'cifar10', 'cifar100'). (see letsam"),
        (["--foo"], "letsam: Unrecognized options: --foo; Available subcommands: compare, bench,"),
        (["compare", "--foo"], "letsam: Unrecognized options: --foo (see letsam compare --help)"),
    ],
)
def test_other_commands(arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hint in fails(capsys, *arguments)


def test_a_place_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "cannot write" in fails(capsys, "compare", "--out", "file")
    assert "cannot write" in fails(capsys, "compare", "--out", "file/deeper", "--name", "x")
    assert (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = folders.create(tmp_path / "runs", "old", Config(epochs=2).resolved(), overwrite=False)
    (folder / "records" / "mine.txt").write_text("precious")
    return folder


def test_an_existing_run_is_left_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = fails(capsys, "compare", "--name", "old")
    assert "--resume" in said
    assert "--overwrite" in said
    assert (run / "records" / "mine.txt").read_text() == "precious"


def test_overwrite_replaces_a_run_and_nothing_else(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders.create(run.parent, "old", Config(epochs=3).resolved(), overwrite=True)
    assert json.loads((run / "config.json").read_text())["epochs"] == 3
    assert not (run / "records" / "mine.txt").exists()
    assert [path.name for path in run.parent.iterdir()] == ["old"]
    (run.parent / "photos").mkdir()
    assert "no run folder" in fails(capsys, "compare", "--name", "photos", "--overwrite")


def test_resume_takes_no_other_settings(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--epochs" in fails(capsys, "compare", "--name", "old", "--resume", "--epochs", "7")
    assert "--overwrite" in fails(capsys, "compare", "--name", "old", "--resume", "--overwrite")
    (run / "config.json").write_text("{")
    assert "config.json" in fails(capsys, "compare", "--name", "old", "--resume")
    (run / "config.json").write_text('{"format": 1, "epochs": "x"}')
    assert "config.json" in fails(capsys, "compare", "--name", "old", "--resume")


def test_one_process_at_a_time(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with folders.locked(run):
        assert "another letsam process" in fails(capsys, "compare", "--name", "old", "--resume")
        assert "another letsam process" in fails(capsys, "compare", "--name", "old", "--overwrite")
    assert (run / "records" / "mine.txt").exists()


def test_an_unfinished_run_has_no_report(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = fails(capsys, "report", "old")
    assert "not finished" in said
    assert said.endswith("go on with letsam compare --name old --resume\n")
    assert not (run / "result.json").exists()


def test_an_encoding_without_greek(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    assert main(["list"]) == 0
    stream.flush()
    assert b"the worst point of an ?2 ball" in stream.buffer.getvalue()  # type: ignore[attr-defined]


def test_the_line_that_resumes_can_be_typed() -> None:
    assert folders.how_to_resume(Path("runs"), "a") == "letsam compare --name a --resume"
    assert folders.how_to_resume(Path("my runs"), "it's") == (
        "letsam compare --name 'it'\"'\"'s' --out 'my runs' --resume"
    )
