"""Sentences and their classes or scores: cross entropy or squared error, and the metrics of the task on its dev set."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib import metadata
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from . import glue_metrics
from .data.encoded import IDS, Encoded, encode, rounded, tokens
from .data.sentences import Sentences
from .from_sentences import FromSentences, in_order
from .models.classifier import encoder_digest, load_classifier, load_tokenizer
from .recipe import Training
from .source import Source, parts

TRIED = 4
"""Examples by which a model shows whether it takes ready-made masks."""
OF_CLASSES = {"test_accuracy": glue_metrics.accuracy, "matthews": glue_metrics.matthews, "f1": glue_metrics.f1}
OF_SCORES = {"pearson": glue_metrics.pearson, "spearman": glue_metrics.spearman}
log = logging.getLogger("letsam")


class SentenceTask:
    """Any checkpoint that classifies sentences, and a task of GLUE."""

    capture: bool | str = "try"
    compile: bool | Mapping[str, Any] = True

    def __init__(self, training: Training, train: Sentences, test: Sentences, device: torch.device) -> None:
        self._sets, said = _encoded(training.model, training.length, train, test, device)
        self.source: Source = FromSentences(training, parts(training, self._sets["train"]), self._sets["dev"], device)
        self.metrics: tuple[str, ...] = ("test_loss", *test.corpus.metrics)
        self.result: tuple[str, ...] = (*test.corpus.metrics, "test_loss")
        self.facts: dict[str, str] = {"set": "the development set of GLUE", "length": said} | _versions()
        self._training, self._device = training, device

    def model(self) -> nn.Module:
        """The checkpoint with a fresh head; what was loaded is a fact of the run."""
        dev, training = self._sets["dev"], self._training
        names = tuple(dev.inputs)
        model = load_classifier(training.model, names, max(dev.classes, 1), training.dropout)
        self.facts["encoder_weights"] = encoder_digest(model, training.model)
        ids = [of.inputs[IDS] for of in self._sets.values()]
        model.check(training.model, max(int(rows.max()) for rows in ids), dev.width)
        *inputs, _ = dev.batch(torch.arange(min(TRIED, len(dev)), device=self._device), dev.width)
        model.to(self._device).try_ready(*inputs)
        return model

    def loss_fn(self, per_sample: bool) -> Callable[[Tensor, Tensor], Tensor]:
        """Cross entropy of classes, squared error of scores."""
        reduction = "none" if per_sample else "mean"
        if not self._sets["dev"].classes:
            return partial(_squared_error, reduction=reduction)
        return partial(cross_entropy, label_smoothing=self._training.label_smoothing, reduction=reduction)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, autocast: torch.dtype | None, last: bool) -> dict[str, float]:
        """The loss and all metrics; of MNLI the other genres, too. All are nan if an output is not finite."""
        outputs, dev = self._outputs(model, self._sets["dev"], autocast), self._sets["dev"]
        loss = (cross_entropy if dev.classes else mse_loss)(outputs, dev.labels)
        if not (outputs.isfinite().all() and loss.isfinite()):  # the largest of such numbers would be some class
            return dict.fromkeys(self.metrics, math.nan)
        predicted, known = (outputs.argmax(1), OF_CLASSES) if dev.classes else (outputs, OF_SCORES)
        found = {name: known[name](predicted, dev.labels) for name in self.metrics if name in known}
        if (other := self._sets.get("mismatched")) is not None:
            right = self._outputs(model, other, autocast).argmax(1)
            found["mismatched_accuracy"] = glue_metrics.accuracy(right, other.labels)
        return {"test_loss": float(loss)} | found

    def _outputs(self, model: nn.Module, of: Encoded, autocast: torch.dtype | None) -> Tensor:
        with torch.autocast(self._device.type, autocast, enabled=autocast is not None):
            return torch.cat([model(*inputs).float() for *inputs, _ in in_order(of)])


def _versions() -> dict[str, str]:
    """Of what makes the tokens and the model."""
    return {package: metadata.version(package) for package in ("transformers", "tokenizers")}


def _squared_error(scores: Tensor, targets: Tensor, reduction: str) -> Tensor:
    return mse_loss(scores.float(), targets, reduction=reduction)


@lru_cache(maxsize=8)  # the runs of a table share it, and its columns come one after the other
def _encoded(
    checkpoint: str, limit: int, train: Sentences, test: Sentences, device: torch.device
) -> tuple[dict[str, Encoded], str]:
    """(the sets as rows of one length, what there is to say about it)."""
    tokenizer = load_tokenizer(checkpoint)
    limit = min(limit, tokenizer.model_max_length)
    _check_length(limit, len(train.corpus.sentences), checkpoint, tokenizer)
    sets = {"train": train, "dev": test, **({"mismatched": test.mismatched} if test.mismatched is not None else {})}
    found = {split: tokens(sentences, tokenizer, limit) for split, sentences in sets.items()}
    cut = [f"{split} {part.cut:,} of {len(sets[split]):,}" for split, part in found.items() if part.cut]
    if cut:
        log.warning("%s: sentences of more than %d tokens are cut: %s", train.corpus.folder, limit, ", ".join(cut))
    longest = max(part.longest for part in found.values())
    length = min(limit, rounded(longest))
    rows = {split: encode(sets[split], found[split], length, tokenizer, device) for split in sets}
    return rows, f"{length} tokens, cut: {', '.join(cut) or 'none'}"


def _check_length(limit: int, sentences: int, checkpoint: str, tokenizer: Any) -> None:
    """ValueError if a row has no room for a token of each sentence: nothing could be cut to that length."""
    least = tokenizer.num_special_tokens_to_add(pair=sentences > 1) + sentences
    if limit < least:
        raise ValueError(f"length is {limit}, and a row of {checkpoint} has at least {least} tokens; set a larger one")
