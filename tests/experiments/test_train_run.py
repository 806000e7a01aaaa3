"""One run: the same numbers every time, and after every interruption."""

import pickle
from pathlib import Path

import pytest
import torch

import letsam
from letsam.experiments import record
from letsam.experiments.checkpoint import save_checkpoint
from letsam.experiments.config import Config, Job
from letsam.experiments.train import Batches, Run, finished, train


class Killed(BaseException):
    pass


def job(method: str, epochs: int = 2, **settings: object) -> Job:
    config = Config(methods=(method,), seeds=(1,), epochs=epochs, batch_size=100, **settings).resolved()  # type: ignore[arg-type]
    return Job(config, config.methods[0], 0)


def folder(root: Path) -> Path:
    for part in ("metrics", "checkpoints"):
        (root / part).mkdir(parents=True)
    return root


def run(job: Job, root: Path, kill_after: int = -1) -> list[str]:
    """Train; returns what it said. Dies in the epoch after `kill_after`, as a killed process would."""
    notes: list[str] = []

    def tell(row: record.Row) -> None:
        if row["epoch"] == kill_after:
            raise Killed

    train(job, root, tell, notes.append)
    return notes


def numbers(job: Job, root: Path) -> list[record.Row]:
    rows = finished(job, root)
    assert rows is not None
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


@pytest.mark.parametrize(
    ("method", "base"),
    [("erm", "adamw"), ("auto-sam", "sgd"), ("auto-sam", "adamw"), ("lets-asam", "sgd"), ("looksam:k=3", "sgd"),
     ("ae-looksam", "sgd"), ("rst", "sgd"), ("esam", "sgd"), ("fsam", "sgd"), ("le-sam", "sgd")],
)  # fmt: skip
def test_resumed_equals_uninterrupted(method: str, base: str, tmp_path: Path) -> None:
    one = job(method, epochs=3, base=base, noise=0.2)
    whole, cut = folder(tmp_path / "whole"), folder(tmp_path / "cut")
    run(one, whole)
    with pytest.raises(Killed):
        run(one, cut, kill_after=1)
    assert finished(one, cut) is None
    assert run(one, cut) == []
    assert numbers(one, cut) == numbers(one, whole)
    assert not list((cut / "checkpoints").iterdir())


def test_rows_say_everything(tmp_path: Path) -> None:
    one = job("auto-sam:every=1,gated=false,bounds=[0.001,1]")
    run(one, folder(tmp_path / "run"))
    rows = numbers(one, tmp_path / "run")
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert rows[0]["rho"] == pytest.approx(letsam.describe("auto-sam").defaults["initial"][0])
    assert rows[-1]["rho"] != rows[0]["rho"]
    for row in rows:
        assert row["gap"] == row["test_loss"] - row["train_loss"]
        assert row["skipped"] == 0
    assert rows[1]["passes"] == 3
    assert rows[-1]["test_accuracy"] > 0.5


def test_plain_training_is_a_loop_without_letsam() -> None:
    ours = Run(job("erm", epochs=1))
    model = Run(ours.job).model.train()
    base = torch.optim.SGD(model.parameters(), 0.03, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(base, ours.total)
    for t in range(ours.total):
        x, y = ours.batches[t]
        base.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        base.step()
        schedule.step()
    assert ours.epoch()["rho"] is None
    for p, q in zip(ours.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def test_batches_go_through_the_data_once_an_epoch() -> None:
    x = torch.arange(103.0)
    batches = Batches(x, x, size=10, seed=0, stream=2)
    first = torch.cat([batches[t][0] for t in range(10)])
    assert len(first.unique()) == 100
    assert torch.equal(batches[3][0], Batches(x, x, 10, 0, 2)[3][0])
    assert not torch.equal(batches[0][0], batches[10][0])


@pytest.mark.parametrize("damage", ["truncate", "flip", "other settings", "pickle"])
def test_a_damaged_checkpoint_starts_the_run_anew(damage: str, tmp_path: Path) -> None:
    one = job("sam")
    whole, cut = folder(tmp_path / "whole"), folder(tmp_path / "cut")
    run(one, whole)
    with pytest.raises(Killed):
        run(one, cut, kill_after=1)
    (checkpoint,) = (cut / "checkpoints").iterdir()
    raw = bytearray(checkpoint.read_bytes())
    if damage == "truncate":
        checkpoint.write_bytes(raw[:1000])
    elif damage == "flip":
        raw[len(raw) // 2] ^= 1
        checkpoint.write_bytes(raw)
    elif damage == "other settings":
        save_checkpoint(checkpoint, Run(job("sam", noise=0.1)).state_dict())
    else:
        checkpoint.write_bytes(pickle.dumps({"identity": Path("code")}))
    (note,) = run(one, cut)
    assert "starts anew" in note
    assert "\n" not in note
    assert numbers(one, cut) == numbers(one, whole)


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
