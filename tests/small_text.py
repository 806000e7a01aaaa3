"""A tiny language and its pairs: German-like words that are copied, turned around or translated one by one."""

import random
from itertools import product

import torch

from letsam.experiments.data.pairs import from_tensors, make
from letsam.experiments.data.parallel import CORPORA, Parallel
from letsam.experiments.recipe import Training

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


def translation(**changes):
    """Settings of a run on pairs with the shape above, which a test calls `small` among the translators."""
    usual = {
        "data": "multi30k",
        "model": "small",
        "epochs": 2,
        "batch": 256,
        "base": "adamw",
        "lr": 3e-3,
        "beta2": 0.98,
        "weight_decay": 1e-4,
        "schedule": "inverse-sqrt",
        "warmup": 20,
        "label_smoothing": 0.1,
        "precision": "float32",
        "compile": False,
    }
    return Training(**usual | changes)
