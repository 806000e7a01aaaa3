"""Checkpoints with something wrong in them: one line that says what, never a random encoder that trains in silence."""

import json
import logging

import pytest
from safetensors.torch import load_file, save_file

from letsam.experiments.models.classifier import load_classifier
from small_glue import save_bert

pytest.importorskip("transformers")
NAMES = ("input_ids", "token_type_ids", "attention_mask")


@pytest.fixture
def bert(tmp_path):
    return save_bert(tmp_path / "bert")


def edit_weights(checkpoint, change):
    path = f"{checkpoint}/model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def edit_config(checkpoint, **changes):
    path = f"{checkpoint}/config.json"
    with open(path) as file:
        config = json.load(file)
    with open(path, "w") as file:
        json.dump(config | changes, file)


@pytest.mark.parametrize(
    ("change", "count"),
    [
        (lambda weights: {name: w for name, w in weights.items() if "encoder.layer.1." not in name}, 16),
        (lambda weights: {f"other.{name}": w for name, w in weights.items()}, 37),
    ],
)
def test_missing_weights_of_the_encoder(bert, change, count):
    edit_weights(bert, change)
    with pytest.raises(ValueError, match=rf"lacks {count} weights of its encoder, such as bert\.\S+, .*get the check"):
        load_classifier(bert, NAMES, 2, None)


def test_weights_of_another_size(bert):
    edit_config(bert, intermediate_size=48)
    with pytest.raises(ValueError, match="lacks 6 weights of its encoder"):
        load_classifier(bert, NAMES, 2, None)


def test_a_pooler_may_be_missing_and_is_counted(bert, caplog):
    edit_weights(bert, lambda weights: {name: w for name, w in weights.items() if "pooler" not in name})
    with caplog.at_level(logging.WARNING, "letsam"):
        load_classifier(bert, NAMES, 2, None)
    assert "2 weights of its pooler are not in it" in caplog.text


def test_a_whole_checkpoint_says_nothing_and_a_head_of_other_classes_is_drawn(bert, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "letsam"):
        load_classifier(bert, NAMES, 2, None).model.save_pretrained(tmp_path / "of two")
        assert load_classifier(str(tmp_path / "of two"), NAMES, 3, None).model.classifier.out_features == 3
    assert not caplog.text
