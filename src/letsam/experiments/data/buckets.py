"""Batches of sentences of like length, in few shapes: a captured pass wants batches of a shape that it has seen.

A bucket is a length; its batches have as many rows as fit into the tokens of a batch. What does not fill a batch of its
bucket goes into the next longer one, so that at most one batch of an epoch has empty rows.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from .sampler import perm

MOST = 8
"""Buckets, which is shapes."""
MULTIPLE = 8
"""Lengths are multiples of it: what tensor cores and kernels of the attention like."""
RARE, EAGER = 1 / 16, 8
"""A shape below this share of the tokens is not captured, and a pass of it then takes so many times as long."""


def edges(lengths: Tensor) -> list[int]:
    """The lengths of the buckets, of all choices of at most 8 multiples of 8 the cheapest: tokens with padding count,
    those of a rare shape at their price."""
    found = (-(-lengths // MULTIPLE) * MULTIPLE).unique(return_counts=True)
    values, counts = (tensor.tolist() for tensor in found)
    least = RARE * sum(value * count for value, count in zip(values, counts, strict=True))

    @cache
    def cheapest(first: int, most: int) -> tuple[float, tuple[int, ...]]:
        """(cost, edges) of at most so many buckets for the values from `first` on."""
        if first == len(values):
            return 0.0, ()
        if not most:
            return math.inf, ()
        options = []
        for last in range(first, len(values)):
            tokens = values[last] * sum(counts[first : last + 1])
            cost, longer = cheapest(last + 1, most - 1)
            options.append((cost + tokens * (EAGER if tokens < least else 1), (values[last], *longer)))
        return min(options)

    return list(cheapest(0, MOST)[1])


def batches(lengths: Tensor, edges: list[int], tokens: int, seed: int, epoch: int) -> list[tuple[int, Tensor]]:
    """(length, rows) of every batch of an epoch, in a random order; a row is the number of a sentence.

    `lengths` are on the CPU. Rows that no sentence fills have the number len(lengths).
    """
    order = perm(seed, epoch, len(lengths))
    bucket = torch.searchsorted(torch.tensor(edges), lengths[order])
    found, left = [], order[:0]
    for i, length in enumerate(edges):
        waiting = torch.cat([left, order[bucket == i]])
        rows = rows_of(length, tokens)
        whole = len(waiting) // rows * rows
        found += [(length, part) for part in waiting[:whole].split(rows)] if whole else []
        left = waiting[whole:]
    if len(left):
        empty = torch.full((rows_of(edges[-1], tokens) - len(left),), len(lengths))
        found.append((edges[-1], torch.cat([left, empty])))
    return [found[i] for i in perm(seed, epoch, len(found)).tolist()]


def rows_of(length: int, tokens: int) -> int:
    """How many sentences of a length a batch has."""
    return max(1, tokens // length)
