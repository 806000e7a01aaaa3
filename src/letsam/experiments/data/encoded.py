"""Sentences as a checkpoint reads them: rows of tokens of one length on the device.

Most rows are much shorter than the longest, so that a batch is cut to what it needs; to one of a few lengths, so that
passes have few shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .sentences import Sentences

IDS = "input_ids"
MULTIPLE = 8
"""Rows are as long as the longest of them, rounded up to this."""
SHAPES = 3
"""Lengths of training batches, at most."""


@dataclass(frozen=True)
class Encoded:
    """Inputs of a model by name, each (examples, length), and the labels."""

    inputs: dict[str, Tensor]
    labels: Tensor
    classes: int
    lengths: Tensor
    """Tokens of each example, on the CPU: the host decides by them."""
    left: bool
    """Whether the padding is before the tokens."""

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Tensor) -> Encoded:
        """Some of the examples."""
        indices = indices.to(self.labels.device)
        inputs = {name: rows[indices] for name, rows in self.inputs.items()}
        return replace(self, inputs=inputs, labels=self.labels[indices], lengths=self.lengths[indices.cpu()])

    def batch(self, chosen: Tensor, length: int) -> tuple[Tensor, ...]:
        """Some examples, cut to a length that none of them is over: the inputs, and the labels."""
        kept = slice(-length, None) if self.left else slice(length)
        return *(rows[:, kept][chosen] for rows in self.inputs.values()), self.labels[chosen]

    @property
    def width(self) -> int:
        """The length of all rows, padding included."""
        return self.inputs[IDS].shape[1]

    def edges(self, size: int) -> list[int]:
        """Lengths for batches of so many examples, so that about as many batches need each of them.

        The longest of n examples is under the length L with the probability F(L)ⁿ, F the share of examples that are.
        """
        shares = torch.tensor([(i / SHAPES) ** (1 / size) for i in range(1, SHAPES + 1)])
        wanted = self.lengths.float().quantile(shares, interpolation="higher").tolist()
        return sorted({min(self.width, rounded(int(length))) for length in wanted})

    def with_labels(self, labels: Tensor) -> Encoded:
        """The same examples with other labels."""
        return replace(self, labels=labels)


@dataclass(frozen=True)
class Tokens:
    """What a tokenizer makes of a set: inputs by name, a list for each example, and how many had to be cut."""

    inputs: dict[str, list[list[int]]]
    cut: int

    @property
    def longest(self) -> int:
        """Tokens of the longest example."""
        return max(map(len, self.inputs[IDS]))


def rounded(length: int) -> int:
    """The next multiple."""
    return -(-length // MULTIPLE) * MULTIPLE


def tokens(sentences: Sentences, tokenizer: Any, limit: int) -> Tokens:
    """Examples of more than `limit` tokens lose the end of their longer sentence, as is usual."""
    columns = [list(column) for column in zip(*sentences.texts, strict=True)]
    found = dict(tokenizer(*columns, return_attention_mask=True, verbose=False))
    long = [i for i, ids in enumerate(found[IDS]) if len(ids) > limit]
    if long:
        some = [[column[i] for i in long] for column in columns]
        shorter = tokenizer(*some, truncation=True, max_length=limit, return_attention_mask=True)
        for name, rows in found.items():
            for i, row in zip(long, shorter[name], strict=True):
                rows[i] = row
    return Tokens(found, len(long))


def encode(sentences: Sentences, found: Tokens, length: int, tokenizer: Any, device: torch.device) -> Encoded:
    """Rows of one length on the device, filled up at the tokenizer's side; the mask has 0 where there is padding."""
    fillers = {IDS: tokenizer.pad_token_id, "token_type_ids": tokenizer.pad_token_type_id}
    left, inputs = tokenizer.padding_side == "left", {}
    for name, rows in found.inputs.items():
        fill = [[fillers.get(name, 0)] * (length - len(row)) for row in rows]
        pairs = zip(fill, rows, strict=True) if left else zip(rows, fill, strict=True)
        inputs[name] = torch.tensor([first + second for first, second in pairs]).to(device)
    lengths = torch.tensor([len(ids) for ids in found.inputs[IDS]])
    return Encoded(inputs, sentences.labels.to(device), len(sentences.corpus.classes), lengths, left)
