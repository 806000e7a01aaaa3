"""What data a run saw, for its record: hashes of both sets and of the noisy labels, and whether a set was whole."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from .data import imagenet
from .data.glue import empty
from .data.hashes import label_hash, pixel_hash
from .data.imagenet import Files
from .data.images import Images
from .data.noise import noise_record, symmetric_noise
from .data.pairs import Pairs
from .data.sentences import Sentences
from .recipe import Training
from .source import AnySet, chosen

Facts = dict[str, Any]
PARTIAL = "partial"


def seen(training: Training, train: AnySet, test: AnySet) -> Facts:
    """Of the whole sets, as `letsam data` shows them; which samples of them are trained on, the seed decides."""
    facts: Facts = {"train": _facts(train), "test": _facts(test)}
    if training.noise and not isinstance(train, Pairs):
        classes = len(train.corpus.classes) if isinstance(train, Sentences) else train.classes
        true = train.labels.cpu()[chosen(training, len(train))]
        facts["noise"] = noise_record(true, symmetric_noise(true, classes, training.noise, training.seed))
    if not (_whole(train, "train") and _whole(test, "dev")):
        facts[PARTIAL] = True
    return facts


def is_partial(record: dict[str, Any]) -> bool:
    """Whether a run saw a part of its set alone: it is not what a paper's number is about."""
    return bool(record.get("data", {}).get(PARTIAL))


def _facts(data: AnySet) -> Facts:
    if isinstance(data, Images):
        stored = data.images[:, :1] if data.images.stride(1) == 0 else data.images  # grey ones are shown as colours
        return {
            "images": len(data),
            "pixels_sha256": pixel_hash(stored),
            "labels_sha256": label_hash(data.labels),
        }
    if isinstance(data, Files):
        paths = b"\n".join(data.index.paths[data.split].tolist())
        return {"images": len(data), "paths_sha256": hashlib.sha256(paths).hexdigest()}
    if isinstance(data, Sentences):
        text = json.dumps(data.texts, ensure_ascii=False).encode()
        return {"examples": len(data), "text_sha256": hashlib.sha256(text).hexdigest()}
    digest = hashlib.sha256()
    for side in (data.source, data.target):
        for part in (side.tokens, side.lengths):
            digest.update(part.cpu().numpy().astype("<i8").data)
    return {"pairs": len(data), "tokens_sha256": digest.hexdigest()}


def _whole(data: AnySet, split: str) -> bool:
    """Whether a set is the published one; of those that cannot be stored in part, yes."""
    if isinstance(data, Files):
        return data.classes == imagenet.CLASSES and len(data) == imagenet.IMAGES[data.split]
    if isinstance(data, Sentences):
        rest = data.mismatched is None or _whole(data.mismatched, "mismatched")
        return rest and data.corpus.is_whole(split, len(data), empty(data.texts))
    return True
