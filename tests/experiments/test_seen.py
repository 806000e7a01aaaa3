"""What a record says about the data: the hashes that letsam data shows, the labels that the run was trained on."""

from dataclasses import replace

import pytest
import torch

from letsam.experiments.data.hashes import label_hash, pixel_hash
from letsam.experiments.data.images import load
from letsam.experiments.recipe import Training
from letsam.experiments.reproduce import Cell
from letsam.experiments.seen import seen
from letsam.experiments.source import in_colour, parts
from small_text import copy_pairs

TRAINING = Training(data="digits", model="small-cnn", noise=0.4, images=200, seed=3)


def test_noisy_labels_are_those_of_the_run():
    train, test = load("digits"), load("digits", split="test")
    facts = seen(TRAINING, train, test)
    *_, samples = parts(TRAINING, train)
    true = parts(replace(TRAINING, noise=0.0), train)[2].labels
    assert facts["noise"] == {
        "changed": int((samples.labels != true).sum()),
        "labels_sha256": label_hash(samples.labels),
    }
    assert facts["noise"]["changed"] > 0
    assert facts["train"]["labels_sha256"] == label_hash(train.labels)
    assert seen(replace(TRAINING, noise=0.0), train, test).keys() == {"train", "test"}


def test_grey_images_have_the_hash_of_the_stored_set():
    grey, test = load("digits"), load("digits", split="test")
    facts = seen(TRAINING, in_colour(grey), in_colour(test))
    assert facts["train"]["pixels_sha256"] == pixel_hash(grey.images)


def test_another_pixel_or_word_is_another_hash():
    train, test = load("digits"), load("digits", split="test")
    other = replace(train, images=train.images.clone())
    other.images[0, 0, 0, 0] ^= 1
    assert seen(TRAINING, train, test)["train"] != seen(TRAINING, other, test)["train"]
    pairs, rest = copy_pairs((4, 2, 2), longest=2)
    translation = Training(data="multi30k", model="transformer-tiny")
    changed = replace(pairs, target=replace(pairs.target, tokens=torch.flip(pairs.target.tokens, (0,)) + 1))
    assert seen(translation, pairs, rest)["train"] != seen(translation, changed, rest)["train"]
    assert seen(translation, pairs, rest) == seen(translation, pairs, rest)


@pytest.mark.parametrize(
    ("partial", "text", "difference"), [(False, "70.00 (1)", "-7.00"), (True, "70.00 (1), a", "–")]
)
def test_a_part_of_a_set_is_not_put_beside_the_paper_without_a_mark(partial, text, difference):
    cell = Cell("sam", "resnet50", (70.0,), (77.0, 0.1), partial=partial)
    assert cell.text.startswith(text)
    assert cell.difference == difference
