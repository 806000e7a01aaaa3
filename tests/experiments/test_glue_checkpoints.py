"""Checkpoints with something wrong in them: one line that says what, never a random encoder that trains in silence."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from letsam.experiments.models import digest
from letsam.experiments.models.classifier import Classifier, encoder_digest, load_classifier, load_tokenizer
from letsam.experiments.recipe import Training
from letsam.experiments.sentence_task import SentenceTask
from small_glue import SMALL, save_bert, save_deberta, save_encoder, save_tokenizer, small_sets

pytest.importorskip("transformers")
NAMES = ("input_ids", "token_type_ids", "attention_mask")


@pytest.fixture
def bert(tmp_path):
    return save_bert(tmp_path / "bert")


def edit_weights(checkpoint, change):
    path = f"{checkpoint}/model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def edit_config(checkpoint, name="config.json", **changes):
    path = Path(checkpoint, name)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


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


def test_a_checkpoint_that_is_not_there_is_noticed_at_its_config_and_the_hub_is_silent(bert):
    """Without a network every file is tried five times, with a line for each try."""
    hub = logging.getLogger("huggingface_hub")
    hub.setLevel(logging.WARNING)
    Path(bert, "config.json").unlink()
    with pytest.raises(ValueError, match=r"the checkpoint .* cannot be loaded") as error:
        load_tokenizer(bert)
    assert "\n" not in str(error.value)
    assert not hub.isEnabledFor(logging.WARNING)


@pytest.mark.parametrize(("save", "once"), [(save_deberta, True), (save_bert, False)])
def test_the_digest_of_an_encoder_is_made_once_for_the_same_files(tmp_path, save, once):
    """But for one with a pooler, which may have been drawn."""
    checkpoint = save(tmp_path / "checkpoint")
    names = ("input_ids", "attention_mask")
    model = load_classifier(checkpoint, names, 2, None)
    first = encoder_digest(model, checkpoint)
    assert first == digest(model.model.base_model)
    with torch.no_grad():
        next(model.model.base_model.parameters()).add_(1)
    assert (encoder_digest(model, checkpoint) == first) is once
    edit_weights(checkpoint, lambda weights: {name: weight + 1 for name, weight in weights.items()})
    other = load_classifier(checkpoint, names, 2, None)
    assert encoder_digest(other, checkpoint) == digest(other.model.base_model) != first


def cut_file(checkpoint):
    path = Path(checkpoint, "model.safetensors")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def break_tokenizer(checkpoint):
    Path(checkpoint, "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "Nope"}}')


def forget_words(checkpoint):
    edit_config(checkpoint, vocab_size=6)
    edit_weights(checkpoint, lambda weights: _first(weights, "embeddings.word_embeddings.weight", 6))


def forget_positions(checkpoint):
    edit_config(checkpoint, max_position_embeddings=8)
    edit_weights(checkpoint, lambda weights: _first(weights, "embeddings.position_embeddings.weight", 8))


def _first(weights, name, rows):
    return weights | {name: weights[name][:rows].clone()}


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (cut_file, r"the checkpoint .* cannot be loaded .*LETSAM_CHECKPOINTS"),
        (break_tokenizer, r"the checkpoint .* cannot be loaded .*LETSAM_CHECKPOINTS"),
        (forget_words, r"says 14, and its weights know 6 tokens"),
        (forget_positions, r"bert reads 8 tokens, and rows have 16; set length = 8"),
    ],
)
def test_files_that_do_not_fit(bert, tmp_path, spoil, line):
    spoil(bert)
    with pytest.raises(ValueError, match=line) as error:
        task(bert, tmp_path).model()
    assert "\n" not in str(error.value)


def test_positions_that_are_counted_after_the_padding_token(tmp_path):
    roberta = save_encoder(tmp_path / "roberta", "Roberta", **SMALL, max_position_embeddings=16, pad_token_id=0)
    with pytest.raises(ValueError, match="reads 15 tokens, and rows have 16; set length = 15"):
        task(roberta, tmp_path).model()
    task(roberta, tmp_path, length=15).model()


def test_rows_are_filled_up_where_the_tokenizer_does_it(tmp_path):
    """XLNet reads the class off the last token."""
    from transformers import XLNetConfig, XLNetModel

    folder = tmp_path / "xlnet"
    size = save_tokenizer(folder)
    edit_config(folder, "tokenizer_config.json", padding_side="left")
    XLNetModel(XLNetConfig(vocab_size=size, d_model=16, n_layer=2, n_head=2, d_inner=32)).save_pretrained(folder)
    found = task(str(folder), tmp_path)
    ids, types, mask, _ = found.source.batch(0, 0)
    assert not mask.all()
    assert torch.equal(mask.bool(), ids != 0)
    assert mask[:, -1].all()
    model = found.model().eval()
    alone = [model(*(x[None, real.bool()] for x in row)) for *row, real in zip(ids, types, mask, mask, strict=True)]
    torch.testing.assert_close(model(ids, types, mask), torch.cat(alone), rtol=1e-4, atol=1e-5)


def task(checkpoint, folder, length=128):
    """Of MRPC, with pairs of 16 tokens at most."""
    training = Training(data="mrpc", model=checkpoint, batch=4, length=length)
    return SentenceTask(training, *small_sets(folder, "mrpc"), torch.device("cpu"))


class CountsPositions(torch.nn.Module):
    """As MPNet of earlier versions does: positions are made without a device."""

    def forward(self, input_ids):
        return SimpleNamespace(logits=torch.arange(input_ids.shape[1]).expand(*input_ids.shape))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_a_model_makes_is_made_where_its_inputs_are(device):
    logits = Classifier(CountsPositions(), ("input_ids",))(torch.zeros(2, 3, device=device))
    assert logits.device.type == device
