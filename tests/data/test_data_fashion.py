"""Fashion-MNIST from idx files: plain, gzipped, where Debian puts them, damaged."""

import gzip
from pathlib import Path

import pytest
import torch
from small_sets import IMAGES, content, idx, idx_files, write_files

from letsam.cli import main
from letsam.experiments.data import fashion
from letsam.experiments.data.images import load

SPLITS = content(10, shape=(1, 28, 28))


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fashion, "IMAGES", IMAGES)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("below", ["", fashion.DEBIAN])
def test_idx_files(packed: bool, below: str, tmp_path: Path) -> None:
    write_files(tmp_path / below, idx_files(SPLITS, packed))
    found = fashion.read(tmp_path)
    for split, (images, labels) in SPLITS.items():
        assert torch.equal(found.splits[split][0], images)
        assert torch.equal(found.splits[split][1], labels)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(tmp_path / "idx", idx_files(SPLITS, packed=True))
    place = tmp_path / "place"
    assert main(["data", "fashion-mnist", "--source", str(tmp_path / "idx"), "--folder", str(place)]) == 0
    assert "1×28×28" in capsys.readouterr().out
    assert torch.equal(load("fashion-mnist", place, split="test").images, SPLITS["test"][0])


IMAGE_FILE = "train-images-idx3-ubyte"
GOOD = idx(SPLITS["train"][0].squeeze(1))


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (GOOD[:-1], "more or less than"),
        (GOOD + b"x", "more or less than"),
        (b"\x00\x00\x09\x03" + GOOD[4:], "is no idx file of shape"),
        (idx(SPLITS["train"][0].squeeze(1)[:19]), "is no idx file of shape"),
        (b"", "is no idx file of shape"),
    ],
)
def test_damaged_content(data: bytes, hint: str, tmp_path: Path) -> None:
    for packed in (False, True):
        folder = write_files(tmp_path / str(packed), idx_files(SPLITS, packed))
        name, raw = (f"{IMAGE_FILE}.gz", gzip.compress(data)) if packed else (IMAGE_FILE, data)
        (folder / name).write_bytes(raw)
        with pytest.raises(ValueError, match=hint):
            fashion.read(folder)


@pytest.mark.parametrize("raw", [b"no gzip", gzip.compress(GOOD)[:500], gzip.compress(GOOD)[:-4]])
def test_damaged_gzip(raw: bytes, tmp_path: Path) -> None:
    folder = write_files(tmp_path, idx_files(SPLITS, packed=True))
    (folder / f"{IMAGE_FILE}.gz").write_bytes(raw)
    with pytest.raises(ValueError, match="damaged"):
        fashion.read(folder)


def test_missing_files_and_bad_labels(tmp_path: Path) -> None:
    folder = write_files(tmp_path, idx_files(SPLITS, packed=False))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(torch.tensor([0, 1, 2, 10])))
    with pytest.raises(ValueError, match="0 to 9"):
        fashion.read(folder)
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte \(or \.gz\) is missing"):
        fashion.read(folder)
