"""A tiny language and its pairs: German-like words that are copied, turned around or translated one by one."""

import random
from itertools import product

import torch

from letsam.experiments.data.pairs import from_tensors, make
from letsam.experiments.data.parallel import CORPORA, Parallel

SHAPE = {"width": 32, "hidden": 64, "heads": 4, "depth": 1, "dropout": 0.0}


def sentences(n, words, seed, longest=6):
    draw = random.Random(seed)
    return [" ".join(draw.choice(words) for _ in range(draw.randint(2, longest))) for _ in range(n)]


def copy_pairs(counts=(600, 40, 60), words=24, seed=0, longest=6, device="cpu"):
    """(training pairs, test pairs) of a copy task through the real code: vocabulary, tensors, loading."""
    known = ["".join(letters) for letters in product("bdfgk", "aeiou", "lmnrst")][:: max(1, 150 // words)][:words]
    texts = {
        split: (text := sentences(n, known, seed + i, longest), list(text))
        for i, (split, n) in enumerate(zip(("train", "valid", "test"), counts, strict=True))
    }
    named, facts = make(CORPORA["multi30k"], Parallel(texts, dict.fromkeys(texts, 0), {"kind": "a test"}))
    return from_tensors(named, facts["vocabulary"], device)


def random_tokens(rows, length, vocabulary, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, vocabulary, (rows, length), generator=generator)
