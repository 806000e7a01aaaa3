"""Sentence pairs as numbers: all sentences of a side in one row of tokens, with the place where each ends.

A stored set of text is a folder with two files:

    pairs.safetensors   {train,valid,test}_{source,target} int32, …_ends int64; references, bpe: bytes of text, of JSON
    source.json         where it came from, pairs, what was left out, hashes
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import bpe, store
from .parallel import CORPORA, Corpus, Parallel, text_hash

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE = "pairs.safetensors"
LONGEST = 175
"""Tokens of a side. Longer pairs are left out of training and validation, never of the test."""


@dataclass(frozen=True)
class Side:
    """Sentences of one language, EOS at the end of each: sentence i is tokens[starts[i] : starts[i] + lengths[i]]."""

    tokens: Tensor
    starts: Tensor
    lengths: Tensor

    def rows(self, chosen: Tensor, length: int) -> Tensor:
        """(chosen, length): sentences with padding after them; the host never waits."""
        places = torch.arange(length, device=self.tokens.device)
        inside = places < self.lengths[chosen, None]
        found = self.tokens[(self.starts[chosen, None] + places).clamp_max(len(self.tokens) - 1)]
        return torch.where(inside, found, bpe.PAD)

    def subset(self, indices: Tensor) -> Side:
        """Some of the sentences."""
        return replace(self, starts=self.starts[indices], lengths=self.lengths[indices])


@dataclass(frozen=True)
class Pairs:
    """Sentences and their translations on one device, and what turns tokens into text again."""

    source: Side
    target: Side
    vocabulary: int
    tokenizer: Tokenizer
    references: tuple[str, ...] = ()
    """The translations as text: of the test pairs alone."""
    held_out: Pairs | None = None
    """The pairs of the set's own validation part: of the training pairs alone."""

    def __len__(self) -> int:
        return len(self.source.lengths)

    @property
    def lengths(self) -> Tensor:
        """Of the longer side of each pair."""
        return torch.maximum(self.source.lengths, self.target.lengths)

    def subset(self, indices: Tensor) -> Pairs:
        """Some of the pairs."""
        indices = indices.to(self.source.lengths.device)
        return replace(self, source=self.source.subset(indices), target=self.target.subset(indices))


def make(corpus: Corpus, found: Parallel) -> tuple[dict[str, Tensor], store.Facts]:
    """(tensors, facts) of a set to be stored; the vocabulary is learned from the training text of both languages."""
    tokenizer = bpe.learn(sentence for side in found.texts["train"] for sentence in side)
    named, parts = {"bpe": _bytes(tokenizer.to_str())}, {}
    for split, texts in found.texts.items():
        pairs = list(zip(*(bpe.encode(tokenizer, side) for side in texts), strict=True))
        fitting = [pair for pair in pairs if split == "test" or max(map(len, pair)) <= LONGEST]
        if not fitting:
            raise ValueError(f"every {split} pair has more than {LONGEST} tokens: cut the lines into sentences")
        for i, side in enumerate(("source", "target")):
            named[f"{split}_{side}"] = torch.tensor([t for pair in fitting for t in pair[i]], dtype=torch.int32)
            named[f"{split}_{side}_ends"] = torch.tensor(list(accumulate(len(pair[i]) for pair in fitting)))
        left_out = {"empty": found.empty[split], "too long": len(pairs) - len(fitting)}
        parts[split] = {"pairs": len(fitting), "left_out": left_out, "text_sha256": text_hash(texts)}
    parts["test"]["empty"] = sum(not (one and two) for one, two in zip(*found.texts["test"], strict=True))
    named["references"] = _bytes("\n".join(found.texts["test"][1]))
    facts = {"name": corpus.name, "title": corpus.title, "vocabulary": tokenizer.get_vocab_size(), "splits": parts}
    return named, {**facts, "source": found.origin}


def load(name: str, folder: Path | None, device: torch.device | str = "cpu") -> tuple[Pairs, Pairs]:
    """(training pairs, test pairs) that `letsam data` has stored, checked against their hash."""
    from safetensors import safe_open

    place = store.place_of(folder)
    again = f"run letsam data {name} --source FOLDER"
    try:
        facts = store.read_facts(place, name, FILE)
    except store.Damaged as damage:
        raise ValueError(f"{damage}: {again} to get it anew") from None
    if facts is None:
        raise ValueError(
            f"there is no {CORPORA[name].title} in {place}: {again} first, or set LETSAM_DATA to where it is"
        )
    with safe_open(place / name / FILE, framework="pt", device="cpu") as file:
        named = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    return from_tensors(named, facts["vocabulary"], device)


def from_tensors(named: dict[str, Tensor], vocabulary: int, device: torch.device | str) -> tuple[Pairs, Pairs]:
    """(training pairs, test pairs) on a device."""
    tokenizer = bpe.load(named["bpe"].numpy().tobytes())
    parts = {
        split: Pairs(
            _side(named, f"{split}_source", device), _side(named, f"{split}_target", device), vocabulary, tokenizer
        )
        for split in ("train", "valid", "test")
    }
    references = tuple(named["references"].numpy().tobytes().decode().split("\n"))
    return replace(parts["train"], held_out=parts["valid"]), replace(parts["test"], references=references)


def _side(named: dict[str, Tensor], name: str, device: torch.device | str) -> Side:
    tokens, ends = named[name], named[f"{name}_ends"]
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    return Side(tokens.long().to(device), starts.to(device), (ends - starts).to(device))


def _bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
