"""The metrics of GLUE as shares, from −1 or 0 to 1; a table shows them times 100. In float64.

matthews   (TP·TN − FP·FN) / √((TP + FP)(TP + FN)(TN + FP)(TN + FN)), 0 where the root is 0
f1         2·TP / (2·TP + FP + FN) of class 1, 0 where there is nothing to divide by
pearson    the correlation of prediction and score, 0 where one of them does not vary
spearman   that of their ranks; equal values share the mean of their ranks
"""

from __future__ import annotations

import torch
from torch import Tensor


def accuracy(predicted: Tensor, true: Tensor) -> float:
    """The share that is right."""
    return float((predicted == true).double().mean())


def matthews(predicted: Tensor, true: Tensor) -> float:
    """Of two classes."""
    hit, no_hit, miss, false = _counts(predicted, true)
    root = ((hit + false) * (hit + miss) * (no_hit + false) * (no_hit + miss)) ** 0.5
    return (hit * no_hit - false * miss) / root if root else 0.0


def f1(predicted: Tensor, true: Tensor) -> float:
    """Of class 1 of two."""
    hit, _, miss, false = _counts(predicted, true)
    whole = 2 * hit + false + miss
    return 2 * hit / whole if whole else 0.0


def pearson(predicted: Tensor, true: Tensor) -> float:
    """Of numbers; not finite if a prediction is not."""
    x, y = (values.double() - values.double().mean() for values in (predicted, true))
    root = float((x.square().sum() * y.square().sum()).sqrt())
    return float((x * y).sum()) / root if root else 0.0


def spearman(predicted: Tensor, true: Tensor) -> float:
    """Of numbers."""
    if not predicted.isfinite().all():
        return float("nan")
    return pearson(_ranks(predicted), _ranks(true))


def _counts(predicted: Tensor, true: Tensor) -> tuple[float, float, float, float]:
    """True and false ones of class 1 and 0: TP, TN, FN, FP."""
    pairs = torch.bincount(2 * true.cpu().long() + predicted.cpu().long(), minlength=4).tolist()
    no_hit, false, miss, hit = pairs
    return hit, no_hit, miss, false


def _ranks(values: Tensor) -> Tensor:
    """From 1; equal values have the mean of the ranks that they take up together."""
    _, group, count = values.unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0).double()
    return (last - (count.double() - 1) / 2)[group]
