"""Symmetric label noise: round(rate·n) training labels, chosen at random, are drawn anew.

Two definitions are in use, and they differ in how many labels end up wrong:

    "any"     uniform over all classes, the true one included: a share rate·(1 − 1/classes) is wrong
    "other"   uniform over the other classes: a share `rate` is wrong

LETS says only that labels "are flipped randomly", after the SAM and AE-SAM papers, and publishes no code. "any", with
the exact count, is the default because the public code of two papers of the family with the same experiment, F-SAM
and SASSHA, does that. Its ERM at rate 0.8 agrees: 28.2 % and 29.0 %, where "any" leaves 28 % of the labels true and
"other" 20 %; this alone would not decide, since a network can be some points better than its labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...checks import one_of, within
from .hashes import label_hash

KINDS = ("any", "other")


def symmetric_noise(labels: torch.Tensor, classes: int, rate: float, seed: int, kind: str = "any") -> torch.Tensor:
    """Noisy labels on the device of the true ones; the same for the same seed on every device."""
    within("rate", rate, 0, 1)
    one_of("kind", kind, KINDS)
    generator = np.random.default_rng([seed, 1])  # the stream of digits.add_noise, so that "other" equals it
    count = round(rate * len(labels))
    chosen = torch.from_numpy(np.sort(generator.permutation(len(labels))[:count]))
    shift = torch.from_numpy(generator.integers(KINDS.index(kind), classes, size=count))  # from 0 or from 1
    noisy = labels.cpu().clone()
    noisy[chosen] = (noisy[chosen] + shift) % classes
    return noisy.to(labels.device)


def noise_record(true: torch.Tensor, noisy: torch.Tensor) -> dict[str, Any]:
    """What a run record says about noisy labels: how many are wrong, and which ones exactly, as a hash of them all."""
    return {"changed": int((true != noisy).sum()), "labels_sha256": label_hash(noisy)}
