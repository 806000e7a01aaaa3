"""Sentences with a class or a score, as text: their tokens depend on the checkpoint that reads them.

A stored task of GLUE is a folder `<place>/<task>` with two files:

    sentences.safetensors   {train,dev,mismatched}_texts: bytes of JSON, [[sentence, …], …]; …_labels
    source.json             where it came from, examples, those with an empty sentence, lines that were left out, hashes
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import store
from .glue import GLUE, Corpus, Example, Read, check_apart, empty

FILE = "sentences.safetensors"


@dataclass(frozen=True, eq=False)
class Sentences:
    """Examples of a task, in their order."""

    corpus: Corpus
    texts: tuple[tuple[str, ...], ...]
    labels: Tensor
    """Numbers of classes, or float32 scores."""
    mismatched: Sentences | None = None
    """Of MNLI's development set: the examples of other genres."""

    def __len__(self) -> int:
        return len(self.texts)


def make(corpus: Corpus, found: Read, origin: dict[str, str]) -> tuple[dict[str, Tensor], store.Facts]:
    """(tensors, facts) of a task to be stored."""
    check_apart(corpus, found.examples)
    named, parts = {}, {}
    for split, examples in found.examples.items():
        text = json.dumps([texts for texts, _ in examples], ensure_ascii=False).encode()
        named[f"{split}_texts"] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        named[f"{split}_labels"] = _labels(corpus, examples)
        facts = {"examples": len(examples), "empty": empty(texts for texts, _ in examples)}
        parts[split] = {**facts, "text_sha256": hashlib.sha256(text).hexdigest()}
    parts["train"]["left_out"] = found.left_out
    return named, {"name": corpus.name, "title": corpus.folder, "splits": parts, "source": origin}


def of(corpus: Corpus, examples: list[Example], mismatched: Sentences | None = None) -> Sentences:
    """The examples as a set."""
    return Sentences(corpus, tuple(texts for texts, _ in examples), _labels(corpus, examples), mismatched)


def load(name: str, folder: Path | None) -> tuple[Sentences, Sentences]:
    """(training set, development set) that `letsam data glue` has stored, checked against their hash."""
    from safetensors import safe_open

    place, title = store.place_of(folder), GLUE[name].folder
    try:
        facts = store.read_facts(place, name, FILE)
    except store.Damaged as damage:
        raise ValueError(f"{damage}: run letsam data glue --source FOLDER to get it anew") from None
    if facts is None:
        raise ValueError(
            f"there is no {title} in {place}: run letsam data glue --source FOLDER first, with its {title}"
        )
    with safe_open(place / name / FILE, framework="pt", device="cpu") as file:
        parts = {split: _part(GLUE[name], file, split) for split in facts["splits"]}
    dev = parts["dev"]
    return parts["train"], Sentences(dev.corpus, dev.texts, dev.labels, parts.get("mismatched"))


def _part(corpus: Corpus, file: Any, split: str) -> Sentences:
    texts = json.loads(file.get_tensor(f"{split}_texts").numpy().tobytes())
    return Sentences(corpus, tuple(map(tuple, texts)), file.get_tensor(f"{split}_labels"))


def _labels(corpus: Corpus, examples: list[Example]) -> Tensor:
    return torch.tensor([label for _, label in examples], dtype=torch.int64 if corpus.classes else torch.float32)
