"""`letsam compare` as a real process: its output, its files, kill and go on."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from letsam import describe, list_methods
from letsam.cli import main

SMALL = ("--methods", "erm", "auto-sam", "--seeds", "2", "--epochs", "2", "--batch-size", "100")
LONGER = ("--methods", "sam", "auto-sam", "--seeds", "2", "--epochs", "6", "--noise", "0.4")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "letsam", "compare", *arguments]


def letsam(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=cwd, capture_output=True, text=True, timeout=120)


def numbers(result: dict[str, Any]) -> dict[str, Any]:
    """A result without its times."""
    methods = [{k: v for k, v in method.items() if k != "seconds"} for method in result["methods"]]
    return {**result, "methods": methods}


def stored(folder: Path) -> dict[str, Any]:
    return numbers(json.loads((folder / "result.json").read_text()))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    root = tmp_path_factory.mktemp("small")
    return root, letsam(root, *SMALL, "--name", "a", "--json", "--workers", "2")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("longer")
    assert letsam(root, *LONGER, "--name", "whole", "--workers", "1").returncode == 0
    return stored(root / "runs" / "whole")


def test_json_is_the_only_thing_on_stdout(small: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    root, done = small
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert numbers(result) == stored(root / "runs" / "a")
    assert [method["method"] for method in result["methods"]] == ["erm", "auto-sam"]
    plain, auto = (method["passes_per_step"] for method in result["methods"])
    assert plain == 1
    assert 2 < auto < 2.2
    assert result["seeds"] == [0, 1]
    assert "4/4 " in done.stderr


def test_the_run_folder_is_complete(small: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder = small[0] / "runs" / "a"
    config = json.loads((folder / "config.json").read_text())
    assert (config["epochs"], config["noise"], config["lr"], config["seeds"]) == (2, 0.0, 0.03, [0, 1])
    assert json.loads((folder / "environment.json").read_text())["torch"]
    assert (folder / "report.html").stat().st_size > 1_000_000
    records = [json.loads(path.read_text()) for path in folder.glob("records/*.json")]
    assert len(records) == 4
    assert all(len(record["rows"]) == 2 and record["training"]["data"] == "digits" for record in records)
    assert not (folder / "checkpoints").exists()
    assert not list(folder.glob("**/*.tmp"))


def test_a_second_run_has_the_same_numbers_and_a_table(
    small: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    root, _ = small
    done = letsam(root, *SMALL, "--name", "b", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert stored(root / "runs" / "b") == stored(root / "runs" / "a")
    for text in ("test accuracy", "passes/step", "auto-sam", "runs/b/report.html"):
        assert text in done.stdout
    assert done.stderr == ""


def test_on_a_terminal_it_shows_progress_and_leaves_the_table(tmp_path: Path) -> None:
    main, terminal = pty.openpty()
    arguments = command("--methods", "sam", "--seeds", "1", "--epochs", "8", "--workers", "1")
    process = subprocess.Popen(arguments, cwd=tmp_path, stdout=terminal, stderr=terminal)
    os.close(terminal)
    seen = b""
    while True:
        try:
            seen += os.read(main, 65536)
        except OSError:  # the other end is closed
            break
    assert process.wait() == 0
    text = seen.decode()
    for part in ("0/1 runs", "seed 0", "epoch ", "ρ 0.05", "passes/step", "nothing to compare"):
        assert part in text
    assert len(list((tmp_path / "runs").glob("digits-*"))) == 1


def test_the_report_can_be_built_again(
    small: tuple[Path, subprocess.CompletedProcess[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(small[0])
    page = small[0] / "runs" / "a" / "report.html"
    before = page.read_text()
    page.unlink()
    assert main(["report", "a"]) == 0
    assert page.read_text() == before
    assert capsys.readouterr().out == "runs/a/report.html\n"


def test_the_short_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list_methods()
    assert main(["describe", "auto-sam"]) == 0
    assert capsys.readouterr().out.strip() == str(describe("auto-sam"))
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("letsam ")


def start_and_wait_for_a_record(root: Path, workers: int) -> subprocess.Popen[str]:
    arguments = command(*LONGER, "--name", "cut", "--workers", str(workers))
    process = subprocess.Popen(
        arguments,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell starts what runs in its background deaf to Ctrl-C, and the tests may run there.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if list((root / "runs" / "cut" / "records").glob("*.json")):
            return process
        time.sleep(0.01)
    raise AssertionError("the run did not start")


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [grandchild for child in children for grandchild in descendants(child)]


def test_killed_and_resumed_equals_uninterrupted(uninterrupted: dict[str, Any], tmp_path: Path) -> None:
    process = start_and_wait_for_a_record(tmp_path, workers=1)
    workers = descendants(process.pid) if sys.platform == "linux" else []
    process.kill()
    process.communicate()
    assert not (tmp_path / "runs" / "cut" / "result.json").exists()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}/stat").exists() for pid in workers):
        assert time.monotonic() < deadline, "workers outlive the main process"
        time.sleep(0.05)
    done = letsam(tmp_path, "--name", "cut", "--resume", "--json", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert numbers(json.loads(done.stdout)) == uninterrupted


def test_ctrl_c_says_how_to_go_on(uninterrupted: dict[str, Any], tmp_path: Path) -> None:
    process = start_and_wait_for_a_record(tmp_path, workers=2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the job
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == "letsam: stopped; go on with: letsam compare --name cut --resume\n"
    assert letsam(tmp_path, "--name", "cut", "--resume", "--workers", "1").returncode == 0
    assert stored(tmp_path / "runs" / "cut") == uninterrupted
