"""Translation: label-smoothed loss over tokens; every test has the loss of the test text, the last one BLEU too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from . import bleu, models
from .beam import BEAM, LENGTH_PENALTY, translate
from .data import bpe
from .data.bpe import PAD
from .data.pairs import Pairs
from .from_text import FromText, by_length, rows_of_pairs
from .models.translator import Translator
from .recipe import Training
from .smoothing import token_loss
from .source import Source, pair_parts

DECODED_TOKENS = 4096
"""Of sources that are translated at once, padding included."""


class TranslationTask:
    """A translator and its sentence pairs."""

    metrics: tuple[str, ...] = ("test_loss", "bleu", "tokenised_bleu")
    result: tuple[str, ...] = ("bleu", "tokenised_bleu", "test_loss")
    capture: bool | str = True
    compile: bool | Mapping[str, Any] = True

    def __init__(self, training: Training, train: Pairs, test: Pairs, device: torch.device) -> None:
        self.source: Source = FromText(training, pair_parts(training, train), test, device)
        self.facts: dict[str, str] = {}
        self._training, self._test, self._device = training, test, device

    def model(self) -> nn.Module:
        """The translator of that name for the vocabulary of the set."""
        return models.create_translator(self._training.model, self._test.vocabulary).to(self._device)

    def loss_fn(self, per_sample: bool) -> Callable[[Tensor, Tensor], Tensor]:
        """A mean over tokens, padding left out."""
        return partial(token_loss, label_smoothing=self._training.label_smoothing, per_sample=per_sample)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, autocast: torch.dtype | None, last: bool) -> dict[str, float]:
        """Loss a token without smoothing; at last the scores of the translations, nan if the loss is not finite."""
        with torch.autocast(self._device.type, autocast, enabled=autocast is not None):
            found = {"test_loss": self._loss(model)}
            if not last:
                return found
            if not math.isfinite(found["test_loss"]):  # a search among such numbers would find some words
                return dict.fromkeys(self.metrics, math.nan)
            assert isinstance(model, Translator)
            translations = self.translations(model)
        scores, signatures = bleu.score(self._training.data, translations, self._test.references)
        self.facts = {**signatures, "decoding": f"beam {BEAM}, length penalty {LENGTH_PENALTY:g}"}
        return found | scores

    def translations(self, model: Translator) -> list[str]:
        """Of the test sentences, in their order; of one without a word there is nothing to say."""
        found = [""] * len(self._test)
        for rows, length in by_length(self._test, DECODED_TOKENS):
            source, _, _ = rows_of_pairs(self._test, rows, length)
            texts = bpe.decode(self._test.tokenizer, translate(model, source))
            words = (self._test.source.lengths[rows] > 1).tolist()  # before EOS
            for i, text, some in zip(rows.tolist(), texts, words, strict=True):
                found[i] = text if some else ""
        return found

    def _loss(self, model: nn.Module) -> float:
        total, count = torch.zeros((), device=self._device, dtype=torch.float64), 0
        for source, shifted, target in self.source.test():
            tokens = (target != PAD).sum()
            total += token_loss(model(source, shifted), target) * tokens
            count += int(tokens)
        return float(total) / count
