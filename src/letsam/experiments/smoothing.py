"""The loss of a translation: cross entropy with smoothed labels, a mean over the tokens that are there."""

from __future__ import annotations

import torch
from torch import Tensor

from .data.bpe import PAD


def token_loss(logits: Tensor, target: Tensor, label_smoothing: float = 0.0, per_sample: bool = False) -> Tensor:
    """Mean over the tokens of −(1 − ε)·log p(y) − ε/V·Σₖ log p(k) = log Σₖ exp zₖ − (1 − ε)·z_y − ε·mean(z).

    Padding has no part in it. per_sample gives every row's part, scaled so that their mean is the mean over tokens.
    torch's cross_entropy with smoothing and padding waits for the device, and cannot be captured.
    """
    z = logits if logits.dtype == torch.float64 else logits.float()
    chosen = z.gather(-1, target[..., None])[..., 0]
    losses = z.logsumexp(-1) - (1 - label_smoothing) * chosen
    if label_smoothing:
        losses = losses - label_smoothing * z.mean(-1)
    real = target != PAD
    sums = (losses * real).sum(-1)
    return sums * (len(sums) / real.sum()) if per_sample else sums.sum() / real.sum()
