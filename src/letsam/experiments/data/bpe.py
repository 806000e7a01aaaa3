"""One byte-pair vocabulary for both languages, learned from the training text with `tokenizers`.

Text is cut at spaces, each shown as ▁ before its word, and around every punctuation mark; pieces are merged within
these. Joining the pieces and turning ▁ into spaces gives the text back, but for characters that training never saw.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, BOS, EOS, UNKNOWN = range(4)
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
SIZE = 10_000


def learn(sentences: Iterable[str]) -> Tokenizer:
    """A vocabulary of at most 10,000 pieces, the four special ones first."""
    _needed()
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[UNKNOWN]))
    cuts = [pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.Punctuation("isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(vocab_size=SIZE, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(sentences, trainer)
    return tokenizer


def load(content: bytes) -> Tokenizer:
    """A vocabulary from its JSON."""
    _needed()
    from tokenizers import Tokenizer

    return Tokenizer.from_str(content.decode())


def encode(tokenizer: Tokenizer, sentences: list[str]) -> list[list[int]]:
    """Pieces of every sentence, EOS at the end."""
    return [[*found.ids, EOS] for found in tokenizer.encode_batch(sentences)]


def decode(tokenizer: Tokenizer, tokens: list[list[int]]) -> list[str]:
    """Text again; special pieces are left out."""
    return tokenizer.decode_batch(tokens, skip_special_tokens=True)


def _needed() -> None:
    """One line where the packages for text are missing."""
    if any(importlib.util.find_spec(package) is None for package in ("tokenizers", "sacrebleu")):
        raise RuntimeError("text needs the packages tokenizers and sacrebleu: pip install 'letsam[cli,language]'")
