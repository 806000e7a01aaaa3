"""Rows of tokens: masks that a model takes ready-made, padding, and batches that are cut to one of three lengths."""

import pytest
import torch

from letsam.experiments.data import sentences
from letsam.experiments.data.encoded import SHAPES
from letsam.experiments.data.glue import GLUE
from letsam.experiments.recipe import Training
from letsam.experiments.sentence_task import SentenceTask
from small_glue import examples, save_bert, save_deberta, save_gpt2, save_mpnet, small_sets

pytest.importorskip("transformers")


def task(checkpoint, sets, **changes):
    return SentenceTask(Training(data="mrpc", model=checkpoint, batch=8, **changes), *sets, torch.device("cpu"))


def long_sets(n=300):
    """Most pairs are short, a few have up to 60 tokens."""
    found = [[*examples("mrpc", n, seed), *examples("mrpc", 12, seed, longest=28)] for seed in range(2)]
    numbers = [[(texts, GLUE["mrpc"].classes.index(label)) for texts, label in part] for part in found]
    return tuple(sentences.of(GLUE["mrpc"], part) for part in numbers)


@pytest.mark.parametrize(
    ("save", "kind"), [(save_bert, "boolean"), (save_deberta, "boolean"), (save_mpnet, "additive"), (save_gpt2, "")]
)
def test_ready_made_masks_where_they_mean_the_same(tmp_path, save, kind):
    found = task(save(tmp_path / "checkpoint"), small_sets(tmp_path, "mrpc"))
    model = found.model().eval()
    assert model.ready == kind
    *inputs, _ = found.source.batch(0, 0)
    outputs = model(*inputs)
    model.ready = ""
    torch.testing.assert_close(model(*inputs), outputs, rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing(tmp_path):
    found = task(save_bert(tmp_path / "bert"), small_sets(tmp_path, "mrpc"))
    *inputs, _ = found.source.batch(0, 0)
    more = [torch.nn.functional.pad(x, (0, 8)) for x in inputs]
    model = found.model().eval()
    torch.testing.assert_close(model(*more), model(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("validation", ["training", "held-out"])
def test_batches_have_few_lengths_and_lose_no_token(tmp_path, validation):
    checkpoint, sets = save_bert(tmp_path / "bert"), long_sets()
    source = task(checkpoint, sets, validation=validation).source
    widths, tokens = [], 0
    for i in range(-(-len(sets[0]) // 8)):
        ids, _, mask, _ = source.batch(i, 2)
        widths.append(ids.shape[1])
        tokens += int(mask.sum())
    assert all(width % 8 == 0 for width in widths)
    assert 2 <= len(set(widths)) <= SHAPES
    assert max(map(widths.count, set(widths))) < 0.75 * len(widths)  # each of them is of use
    assert tokens == sum(len(first.split()) + len(second.split()) + 3 for first, second in sets[0].texts)


def test_a_batch_is_a_function_of_its_number(tmp_path):
    checkpoint, sets = save_bert(tmp_path / "bert"), long_sets()
    sources = [task(checkpoint, sets).source for _ in range(2)]
    for i in range(2 * sources[0].steps):
        sources[0].batch(i, 0)
    for number in (3, sources[0].steps + 1):
        again = [source.batch(number, 0) for source in sources]
        assert all(torch.equal(x, y) for x, y in zip(*again, strict=True))


def test_the_test_is_the_same_without_the_cut(tmp_path):
    found = task(save_bert(tmp_path / "bert"), long_sets())
    model, dev = found.model().eval(), found._sets["dev"]
    *inputs, _ = dev.batch(torch.arange(len(dev)), dev.width)
    with torch.no_grad():
        cut = torch.cat([model(*batch) for *batch, _ in found.source.test()])
        torch.testing.assert_close(cut, model(*inputs), rtol=1e-4, atol=1e-5)
