"""`letsam data`: find or fetch a set, check it, store it, say what there is."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from ...checks import one_of
from . import cifar_source, digits, fashion, glue_command, imagenet, pairs, store, text_command
from .cifar import CIFAR10, CIFAR100
from .disk import writing
from .images import digit_splits
from .parallel import CORPORA
from .progress import note
from .raw import Obtained

CIFARS = {"cifar10": CIFAR10, "cifar100": CIFAR100}


def data(name: str, folder: Path | None, source: Path | None, console: Console) -> None:
    """Print a table of the set, after getting it if it is not there."""
    one_of("the set", name, (*CIFARS, "fashion-mnist", "imagenet", "digits", *CORPORA, "glue"))
    place = store.place_of(folder)
    if name == "glue":
        glue_command.data(place, source, console)
        return
    if name == "digits":
        facts = _digits(source)
    elif name == "imagenet":
        facts = _imagenet(place, source)
    elif name in CORPORA:
        there = _there(name, place, source, console, pairs.FILE)
        facts = there or text_command.new(name, place, source, console)
    else:
        facts = _there(name, place, source, console) or _new(name, place, source, console)
    (text_command.show if name in CORPORA else _show)(facts, console)
    _say_source(facts, console)
    if name != "digits":
        note(console, f"folder {place}")


def _there(
    name: str, place: Path, source: Path | None, console: Console, file: str = store.TENSORS
) -> store.Facts | None:
    """The set that is stored already, if it is whole."""
    try:
        facts = store.read_facts(place, name, file)
    except store.Damaged as damage:
        note(console, f"note: {damage}; getting it anew")
        return None
    if facts is not None and source is not None:
        note(console, f"note: {place / name} is there and whole, so --source was not read; remove it to replace it")
    return facts


def _new(name: str, place: Path, source: Path | None, console: Console) -> store.Facts:
    """A set of the user's is read before anything is written; what is fetched goes through the data folder."""
    found = _read(name, source)
    with store.opened(place):
        found = found or cifar_source.fetch(CIFARS[name], place, console)
        classes = CIFARS[name].classes if name in CIFARS else fashion.CLASSES
        facts = store.save(place, found.splits, store.describe(name, found.splits, classes, found.origin))
        if found.fetched:
            with writing(place):
                found.fetched.unlink()
    return facts


def _read(name: str, source: Path | None) -> Obtained | None:
    if name not in CIFARS:
        return fashion.read(source)
    return None if source is None else cifar_source.read(CIFARS[name], source)


def _digits(source: Path | None) -> store.Facts:
    if source is not None:
        raise ValueError("the digits come with letsam: drop --source")
    return store.describe("digits", digit_splits(), digits.CLASSES, {"kind": "part of letsam"})


def _imagenet(place: Path, source: Path | None) -> store.Facts:
    if source is not None:
        listing = imagenet.scan(source)
        with store.opened(place):
            return imagenet.save(place, source, listing)
    index = imagenet.read(place)
    if index is None:
        raise ValueError(
            "ImageNet cannot be fetched (image-net.org wants an account): give --source a folder with "
            "train/<wnid>/*.JPEG and val/<wnid>/*.JPEG"
        )
    return imagenet.describe(index)


def _show(facts: store.Facts, console: Console) -> None:
    table = Table(title=f"{facts['name']}, {facts['classes']} classes", title_justify="left")
    for heading in ("split", "images", "size", "sha256 of the pixels"):
        table.add_column(heading, justify="right" if heading == "images" else "left")
    for split, part in facts["splits"].items():
        size = "×".join(map(str, part["shape"])) if part["shape"] else "as they come"
        table.add_row(split, f"{part['images']:,}", size, (part["pixels_sha256"] or "–")[:16])
    console.print(table)
    for word in ("mean", "std"):
        note(console, f"{word:7}{'  '.join(f'{value:.4f}' for value in facts[word])}")


def _say_source(facts: store.Facts, console: Console) -> None:
    origin = dict(facts["source"])
    words = [
        f"{origin.pop('kind')} {origin.pop('name', '')}".strip(),
        *(f"{key} {value}" for key, value in origin.items()),
    ]
    note(console, f"source {', '.join(words)}")
