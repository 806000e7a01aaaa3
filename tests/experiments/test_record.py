"""Files of a run: whole or not at all, and nothing in them that names the user."""

from pathlib import Path

import pytest
import torch

from letsam.experiments import record


def test_writes_are_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "result.json"
    record.write_json(target, {"a": [1.0, float("nan")]})
    assert record.read_json(target) == {"a": [1.0, None]}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record.os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        record.write_json(target, {"b": 2})
    assert record.read_json(target) == {"a": [1.0, None]}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_environment_names_no_user_and_no_folder() -> None:
    text = str(record.environment())
    assert torch.__version__.split("+")[0] in text
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text


def test_the_environment_of_a_run_has_its_threads() -> None:
    """Another number of them is another order of additions, and other last digits."""
    assert record.environment("cpu")["threads"] == torch.get_num_threads()
    assert "threads" not in record.environment()
