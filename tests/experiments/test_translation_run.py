"""Runs on sentence pairs: buckets, the copy task, resume, averages, records; identities that stay."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from letsam.cli import main
from letsam.experiments import bleu
from letsam.experiments.checkpoint import save_checkpoint
from letsam.experiments.data import bpe, buckets
from letsam.experiments.data.bpe import BOS, EOS, PAD
from letsam.experiments.data.pairs import Side
from letsam.experiments.loop import Run, train_run
from letsam.experiments.models import TRANSLATORS, digest
from letsam.experiments.plan import steps_per_epoch
from letsam.experiments.recipe import Training
from letsam.experiments.reproduce import record, score
from small_text import SHAPE, copy_pairs, sentences, translation

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def small_model(monkeypatch):
    monkeypatch.setitem(TRANSLATORS, "small", SHAPE)


settings = translation


@pytest.fixture(scope="module")
def pairs():
    return copy_pairs((120, 20, 10))


def silent(*_):
    pass


@pytest.mark.parametrize(("tokens", "n"), [(256, 1000), (4096, 1000), (30, 77), (1, 5), (4096, 1)])
def test_every_sentence_is_in_one_batch_of_an_epoch(tokens, n):
    lengths = torch.randint(1, 120, (n,), generator=torch.Generator().manual_seed(0))
    edges = buckets.edges(lengths)
    assert len(edges) <= buckets.MOST
    assert all(edge % 8 == 0 for edge in edges)
    assert edges[-1] >= int(lengths.max())
    found = buckets.batches(lengths, edges, tokens, seed=3, epoch=5)
    rows = torch.cat([rows for _, rows in found])
    assert torch.equal(rows[rows < n].sort().values, torch.arange(n))
    for length, chosen in found:
        assert len(chosen) == buckets.rows_of(length, tokens)
        assert int(lengths[chosen[chosen < n]].max()) <= length
    assert sum(bool((rows == n).any()) for _, rows in found) <= 1
    again = buckets.batches(lengths, edges, tokens, seed=3, epoch=5)
    assert all(a == b and torch.equal(x, y) for (a, x), (b, y) in zip(found, again, strict=True))
    others = [buckets.batches(lengths, edges, tokens, seed=s, epoch=e) for s, e in ((3, 6), (4, 5))]
    for other in others:
        assert len(other) == len(found)
        assert Counter(length for length, _ in other) == Counter(length for length, _ in found)
        if n > 100:
            assert not all(torch.equal(x, y) for (_, x), (_, y) in zip(found, other, strict=True) if len(x) == len(y))


def test_edges_waste_little():
    lengths = torch.cat([torch.full((1000,), n) for n in range(3, 60)])
    edges = buckets.edges(lengths)
    padded = torch.tensor(edges)[torch.searchsorted(torch.tensor(edges), lengths)].sum()
    assert float(padded) < 1.2 * float(lengths.sum())


def test_a_batch_is_source_shifted_target_and_target(pairs):
    train, test = pairs
    run = Run(settings(), train, test, "cpu")
    seen = Counter()
    for i in range(run.steps):
        source, shifted, target = run.source.batch(i, 0)
        assert source.shape == shifted.shape == target.shape
        assert bool((shifted[:, 0] == BOS).all())
        assert torch.equal(shifted[:, 1:], target[:, :-1])
        real = (target != PAD).any(1)
        assert torch.equal(source[real], target[real])  # it is a copy task
        assert bool(((source == EOS).sum(1) == 1).all())
        seen.update(tuple(row[row != PAD].tolist()) for row in source[real])
    assert sum(seen.values()) == len(train)
    held_out = Run(settings(validation="held-out"), train, test, "cpu")
    rows = [held_out.source.batch(i, 1)[2] for i in range(8)]
    known = {tuple(row[row != PAD].tolist()) for row in train.held_out.target.rows(torch.arange(20), 64)}
    assert {tuple(row[row != PAD].tolist()) for batch in rows for row in batch if (row != PAD).any()} <= known


def test_test_batches_are_the_test_pairs(pairs):
    run = Run(settings(), *pairs, "cpu")
    assert sum(len(target) for _, _, target in run.source.test()) == len(pairs[1])


def test_a_copy_task_is_learned(tmp_path):
    training = settings(epochs=18, batch=512, lr=8e-3, warmup=60, label_smoothing=0.1)
    pairs = copy_pairs((1500, 40, 60))
    run = train_run(lambda: Run(training, *pairs, "cpu"), tmp_path, silent, silent)
    assert run.rows[0]["bleu"] is None
    assert run.rows[0]["test_loss"] > run.rows[-1]["test_loss"]
    assert run.rows[-1]["bleu"] > 90
    done = record(run)
    assert done["result"]["bleu"] == run.rows[-1]["bleu"] == score(done)
    assert set(done["result"]) == {"bleu", "tokenised_bleu", "test_loss", "train_loss", "rho"}
    assert "tok:13a" in done["metrics"]["bleu"]
    assert "case:lc" in done["metrics"]["tokenised_bleu"]
    assert done["metrics"]["decoding"] == "beam 5, length penalty 1"


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "erm"},
        {"method": "esam"},
        {"method": "lets-asam"},
        {"method": "auto-sam", "validation": "held-out"},
        {"method": "sam", "average": 2, "dropout": 0.3},
    ],
    ids=str,
)
def test_resume_is_exact(changes, pairs, tmp_path, monkeypatch):
    changes = dict(changes)
    monkeypatch.setitem(TRANSLATORS, "small", SHAPE | {"dropout": changes.pop("dropout", 0.1)})
    training = settings(epochs=3, **changes)
    (tmp_path / "whole").mkdir()
    whole = train_run(lambda: Run(training, *pairs, "cpu"), tmp_path / "whole", silent, silent)
    half = Run(training, *pairs, "cpu")
    half.epoch()
    half.epoch()
    save_checkpoint(tmp_path / f"{training.identity}.safetensors", half.state_dict())
    torch.manual_seed(999)
    resumed = train_run(lambda: Run(training, *pairs, "cpu"), tmp_path, silent, silent)
    assert digest(resumed.model) == digest(whole.model)
    for key in ("train_loss", "test_loss", "bleu"):
        assert [row[key] for row in resumed.rows] == [row[key] for row in whole.rows]
    assert whole.rows[-1]["skipped"] == 0


def test_the_mean_of_the_last_epochs_is_tested(pairs):
    averaged, plain = (Run(settings(epochs=4, average=n), *pairs, "cpu") for n in (2, 0))
    states = []
    for _ in range(4):
        averaged.epoch()
        plain.epoch()
        states.append({name: value.clone() for name, value in plain.model.state_dict().items()})
    assert digest(averaged.model) == digest(plain.model)
    losses = [[row["test_loss"] for row in run.rows] for run in (averaged, plain)]
    assert losses[0][:3] == losses[1][:3]  # of one epoch the mean is the epoch
    assert losses[0][3] != losses[1][3]
    for name, value in averaged.average.state.items():
        torch.testing.assert_close(value, (states[2][name] + states[3][name]) / 2)


def test_an_empty_test_sentence_stays_and_has_an_empty_translation(pairs):
    train, test = pairs
    texts = ["", *test.references]
    tokens = [bpe.encode(test.tokenizer, [text])[0] for text in texts]
    ends = torch.tensor([len(row) for row in tokens]).cumsum(0)
    side = Side(torch.tensor([t for row in tokens for t in row]), ends - torch.tensor(list(map(len, tokens))), ends)
    side = replace(side, lengths=side.lengths - side.starts)
    run = Run(settings(), train, replace(test, source=side, target=side, references=tuple(texts)), "cpu")
    found = run.task.translations(run.model)
    assert (len(found), found[0]) == (11, "")
    assert all(found[1:])
    assert run.epoch()["test_loss"] > 0


def test_bleu_of_known_strings():
    references = ["the cat is on the mat .", "there is a dog ."]
    scores, signatures = bleu.score("iwslt14", references, references)
    assert scores == {"bleu": pytest.approx(100), "tokenised_bleu": pytest.approx(100)}
    assert "tok:none" in signatures["tokenised_bleu"]
    one_word_less = ["the cat is on the mat", "there is a dog ."]
    # n-gram precisions are 1; the brevity penalty is exp(1 − 12/11)
    scores, _ = bleu.score("iwslt14", one_word_less, references)
    assert scores["tokenised_bleu"] == pytest.approx(100 * torch.tensor(1 - 12 / 11).exp().item(), abs=1e-4)
    cased, signatures = bleu.score("multi30k", ["A Dog runs, fast."], ["a dog runs, fast."])
    assert cased["tokenised_bleu"] == pytest.approx(100)
    assert cased["bleu"] < 80
    assert "case:mixed" in signatures["bleu"]
    assert "tok:13a" in signatures["tokenised_bleu"]


def test_records_keep_their_identity():
    path = ROOT / "results" / "reproduction" / "cifar10-resnet18-erm-seed0-5f15aea3c51a.json"
    done = json.loads(path.read_text())
    training = Training(**done["training"])
    assert training.identity == done["identity"] == "5f15aea3c51a"
    assert replace(training, beta2=0.98).identity != training.identity != replace(training, average=3).identity
    assert score(done) == pytest.approx(95.57)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"model": "resnet18"}, "multi30k is text, and resnet18 reads images; choose from transformer-iwslt"),
        ({"data": "cifar10"}, "cifar10 has images, and small reads text; choose from resnet18"),
        ({"ema": 0.9, "average": 2}, "ema and average are two averages"),
        ({"beta2": 1.0}, "beta2 is 1.0; give a number from 0 to below 1"),
    ],
)
def test_settings_that_do_not_fit(changes, line):
    with pytest.raises(ValueError, match=line):
        settings(**changes)


RECIPE = """
title = "Small text"
source = "a test"
seeds = [0]
[train]
data = "multi30k"
model = "transformer-tiny"
epochs = 1
batch = 64
base = "adamw"
lr = 1e-3
precision = "float32"
[columns]
plain = { }
[rows]
erm = { method = "erm" }
auto-sam = { method = "auto-sam", validation = "held-out" }
"""


def test_the_commands_from_files_to_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LETSAM_DATA", str(tmp_path / "place"))
    for i, word in enumerate(("train", "val", "test_2016_flickr")):
        for language in ("de", "en"):
            (tmp_path / f"{word}.{language}").write_text("\n".join(sentences(10, ["bal", "den", "fir"], i)) + "\n")
    (tmp_path / "recipes" / "text").mkdir(parents=True)
    (tmp_path / "recipes" / "text" / "recipe.toml").write_text(RECIPE)
    assert main(["data", "multi30k", "--source", "."]) == 0
    assert main(["reproduce", "text", "--plan"]) == 0
    assert "2 runs" in capsys.readouterr().out
    assert main(["reproduce", "text"]) == 0
    out = capsys.readouterr().out
    assert ", BLEU " in out
    records = [json.loads(path.read_text()) for path in (tmp_path / "results" / "reproduction").glob("*.json")]
    assert {done["training"]["method"] for done in records} == {"erm", "auto-sam"}
    assert all(f"{done['result']['bleu']:.2f} (1)" in out for done in records)
    assert main(["measure", "text"]) == 1
    assert "measures want images in memory" in capsys.readouterr().out
    assert main(["figures", "--out", "images", "--page", "page.html"]) == 0
    assert "Small text" in (tmp_path / "page.html").read_text()


def test_sets_of_two_kinds(pairs):
    from letsam.experiments.data.images import load

    with pytest.raises(TypeError, match="of two kinds"):
        Run(settings(), pairs[0], load("digits"), "cpu")
    with pytest.raises(ValueError, match="no validation part"):
        Run(settings(validation="held-out"), replace(pairs[0], held_out=None), pairs[1], "cpu")


def test_steps_are_planned_by_tokens():
    assert steps_per_epoch(settings(batch=4096)) == pytest.approx(145, abs=5)  # as the buckets of the real text have
    assert steps_per_epoch(settings(batch=4096, images=14_499)) == pytest.approx(73, abs=3)
