"""No test image gets into what a run trains or validates on, whatever its settings and the kind of its data set."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

from letsam.experiments.data.imagenet import Files, Index
from letsam.experiments.data.images import Images, load
from letsam.experiments.recipe import Training
from letsam.experiments.source import in_colour, parts

TRAIN, TEST = 60, 20
SETTINGS = [
    Training(validation=validation, images=images, noise=noise, seed=seed)
    for validation in ("training", "held-out")
    for images in (None, 30)
    for noise in (0.0, 0.4)
    for seed in (0, 3)
]


def in_memory():
    """The image is its number; test images have numbers of their own."""
    pixels = torch.arange(TRAIN, dtype=torch.uint8).reshape(-1, 1, 1, 1)
    return Images(pixels, torch.arange(TRAIN) % 10, 10, (0.5,), (0.25,))


def in_files():
    paths = {"train": np.array([b"%d" % i for i in range(TRAIN)]), "test": np.array([b"t%d" % i for i in range(TEST)])}
    labels = {"train": torch.arange(TRAIN) % 10, "test": torch.arange(TEST) % 10}
    return Files(Index(Path("nowhere"), tuple("abcdefghij"), paths, labels), "train")


def numbers(part):
    """Which images of the training set a part has; a test image has no number."""
    if isinstance(part, Images):
        return part.images.flatten(1)[:, 0].tolist()
    assert part.split == "train"
    return [int(path) for path in part.index.paths["train"]]


@pytest.mark.parametrize("make", [in_memory, lambda: in_colour(in_memory()), in_files], ids=["memory", "grey", "files"])
@pytest.mark.parametrize("training", SETTINGS, ids=lambda t: f"{t.validation}-{t.images}-{t.noise}-{t.seed}")
def test_both_parts_are_of_the_training_set(make, training):
    kept, held, both = (numbers(part) for part in parts(training, make()))
    assert set(both) == set(kept) | set(held)
    assert set(kept) | set(held) <= set(range(TRAIN))
    assert len(set(kept)) == len(kept)
    if training.validation == "held-out":
        assert not set(kept) & set(held)
        assert len(held) == round(0.1 * (training.images or TRAIN))


def test_by_construction_the_split_does_not_see_the_test_set():
    assert list(inspect.signature(parts).parameters) == ["training", "train"]


@pytest.mark.parametrize("training", SETTINGS, ids=lambda t: f"{t.validation}-{t.images}-{t.noise}-{t.seed}")
def test_the_digits_themselves(training):
    train, test = load("digits"), load("digits", split="test")
    known = {x.numpy().tobytes() for x in train.images}
    tested = {x.numpy().tobytes() for x in test.images} - known
    for part in parts(training, train):
        found = {x.numpy().tobytes() for x in part.images}
        assert found <= known
        assert not found & tested
