"""Parallel text: two files a split, a sentence a line, line i of one the translation of line i of the other.

IWSLT'14 comes as people have prepared it, {train,valid,test}.{de,en}: tokenised, lower-cased, and often cut into pieces
that end in @@, which are put together again. Multi30k comes raw. Files may be gzipped.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = ("de", "en")
"""Source and target."""
PIECES = re.compile(r"@@(?: |$)")
Texts = tuple[list[str], list[str]]


@dataclass(frozen=True)
class Corpus:
    """A set of parallel text: the first words of its files' names, and what is known about them."""

    name: str
    title: str
    files: dict[str, str]
    sha256: str | None = None
    """Of the training text, German then English, where there is one that everybody has."""


CORPORA = {
    "iwslt14": Corpus("iwslt14", "IWSLT'14 DE-EN", {"train": "train", "valid": "valid", "test": "test"}),
    "multi30k": Corpus(
        "multi30k",
        "Multi30k DE-EN",
        {"train": "train", "valid": "val", "test": "test_2016_flickr"},
        "9567fa5a1cdcde663c8f44f8574dbae1c1dd510bf7f7ad03f3a384867d808a64",
    ),
}


@dataclass(frozen=True)
class Parallel:
    """The sentences of every split, the pairs that were left out because a side was empty, and where all came from.

    Nothing is left out of the test: BLEU would be of another set.
    """

    texts: dict[str, Texts]
    empty: dict[str, int]
    origin: dict[str, str]


def read(corpus: Corpus, source: Path | None) -> Parallel:
    """The set from a folder; ValueError with one line if it is not all there."""
    if source is None or not source.is_dir():
        names = ", ".join(f"{word}.de, {word}.en" for word in corpus.files.values())
        missing = "cannot be fetched" if source is None else f"is not in {source}"
        raise ValueError(f"{corpus.title} {missing}: give --source a folder with {names} (plain or .gz)")
    whole = {split: _read_split(source, word) for split, word in corpus.files.items()}
    cleaned = {split: _without_empty(*texts) for split, texts in whole.items()}
    for split, texts in cleaned.items():
        if not texts[0]:
            raise ValueError(f"{source / corpus.files[split]}.de has no sentence: get it again")
    cleaned["test"] = whole["test"]
    origin = {"kind": "parallel text", "name": source.resolve().name, "sha256": text_hash(whole["train"])}
    if corpus.sha256:
        origin["text"] = "as expected" if origin["sha256"] == corpus.sha256 else "not the published training text"
    return Parallel(cleaned, {split: len(whole[split][0]) - len(cleaned[split][0]) for split in whole}, origin)


def text_hash(texts: Texts) -> str:
    """sha256 of the lines of both sides, one side after the other."""
    return hashlib.sha256("".join(f"{line}\n" for side in texts for line in side).encode()).hexdigest()


def _read_split(folder: Path, word: str) -> Texts:
    one, two = (_lines(folder, f"{word}.{language}") for language in LANGUAGES)
    if len(one) != len(two):
        raise ValueError(
            f"{folder / word}.de has {len(one):,} lines and {word}.en {len(two):,}: line i of one has to be the "
            "translation of line i of the other, get them again"
        )
    return one, two


def _lines(folder: Path, name: str) -> list[str]:
    path = next((folder / file for file in (name, f"{name}.gz") if (folder / file).is_file()), None)
    if path is None:
        raise ValueError(f"{folder / name} (or .gz) is missing: the set is not complete, get it again")
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = content.decode()
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error}): get it again") from None
    # Not splitlines(), which also cuts at characters that are no ends of lines, such as U+2028.
    return [PIECES.sub("", " ".join(line.split())) for line in text.removesuffix("\n").split("\n")]


def _without_empty(one: list[str], two: list[str]) -> Texts:
    kept = [(a, b) for a, b in zip(one, two, strict=True) if a and b]
    return [a for a, _ in kept], [b for _, b in kept]
