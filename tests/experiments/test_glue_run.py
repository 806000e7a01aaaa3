"""Runs on sentences: a small DeBERTa in the one loop; masks, clipping, dropout, length; resume; commands; bad input."""

import copy
import json
import logging
import math
from dataclasses import replace

import pytest
import torch
from made_records import run_record
from torch import nn

from letsam.cli import main
from letsam.experiments.checkpoint import save_checkpoint
from letsam.experiments.data.glue import GLUE
from letsam.experiments.lacking import lacking, needs
from letsam.experiments.loop import Run, train_run
from letsam.experiments.models import digest
from letsam.experiments.models.classifier import load_classifier
from letsam.experiments.optimizers import optimizer
from letsam.experiments.plan import Speeds, steps_per_epoch
from letsam.experiments.recipe import Training
from letsam.experiments.reproduce import name_of, record, score
from letsam.experiments.selection import loader
from small_glue import save_bert, save_deberta, save_gpt2, small_sets, write_task

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def deberta(tmp_path_factory):
    return save_deberta(tmp_path_factory.mktemp("checkpoints") / "deberta")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("checkpoints") / "bert")


@pytest.fixture
def settings(deberta):
    def make(**changes):
        usual = {
            "data": "mrpc",
            "model": deberta,
            "epochs": 1,
            "batch": 4,
            "base": "adam",
            "lr": 1e-3,
            "eps": 1e-6,
            "weight_decay": 0.0,
            "schedule": "linear",
            "clip": 1.0,
            "precision": "float32",
        }
        return Training(**usual | changes)

    return make


@pytest.mark.parametrize("name", GLUE)
def test_every_task_has_its_metrics(tmp_path, settings, name):
    run = Run(settings(data=name, method="sam", rho=0.05), *small_sets(tmp_path, name), "cpu")
    row = run.epoch()
    for metric in GLUE[name].metrics:
        assert -1 <= row[metric] <= 1
    assert math.isfinite(row["test_loss"])
    done = record(run)
    assert score(done) == pytest.approx(100 * row[GLUE[name].metrics[0]])
    assert "development set" in done["metrics"]["set"]
    assert {"transformers", "tokenizers"} < set(done["metrics"])


@pytest.mark.parametrize("method", ["erm", "esam", "lets-sam", "lets-asam", "auto-sam"])
def test_every_kind_of_method(tmp_path, settings, method):
    validation = "held-out" if method == "auto-sam" else "training"
    for name in ("rte", "stsb"):
        training = settings(data=name, method=method, validation=validation)
        row = Run(training, *small_sets(tmp_path, name), "cpu").epoch()
        assert row["skipped"] == 0
        assert math.isfinite(row["train_loss"])


def test_a_small_deberta_learns(tmp_path, settings):
    training = settings(data="sst2", method="sam", rho=0.01, epochs=10, lr=5e-3, batch=16, warmup=5)
    run = Run(training, *small_sets(tmp_path, "sst2", n=200, dev=50), "cpu")
    rows = [run.epoch() for _ in range(10)]
    assert rows[-1]["test_accuracy"] > 0.9
    assert rows[-1]["train_loss"] < rows[0]["train_loss"]


def test_a_resumed_run_is_the_run_that_never_stopped(tmp_path, deberta, settings):
    training = settings(method="lets-sam", epochs=3, dropout=0.2)
    sets = small_sets(tmp_path, "mrpc")
    make = lambda: Run(training, *sets, "cpu")  # noqa: E731
    whole = train_run(make, tmp_path, lambda row: None, print)
    half = make()
    half.epoch()
    (tmp_path / "again").mkdir()
    save_checkpoint(tmp_path / "again" / f"{training.identity}.safetensors", half.state_dict())
    said = []
    resumed = train_run(make, tmp_path / "again", lambda row: None, said.append)
    assert "goes on after epoch 1" in said[0]
    assert digest(resumed.model) == digest(whole.model)
    for key in ("train_loss", "test_loss", "f1", "rho"):
        assert [row[key] for row in resumed.rows] == [row[key] for row in whole.rows]


def test_the_step_is_clipped_and_a_skipped_one_stays_skipped():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    opt = optimizer(Training(method="sam", base="sgd", lr=1.0, momentum=0.0, weight_decay=0.0, clip=0.1), model, 1)

    def closure_of(x):
        def closure():
            opt.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss

        return closure

    before = [p.detach().clone() for p in model.parameters()]
    opt.step(closure_of(torch.randn(8, 4)))
    moved = torch.cat([(p.detach() - b).flatten() for p, b in zip(model.parameters(), before, strict=True)])
    assert moved.norm() == pytest.approx(0.1, rel=1e-4)
    before = [p.detach().clone() for p in model.parameters()]
    opt.step(closure_of(torch.full((8, 4), float("nan"))))
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert opt.last.skipped


def test_three_steps_are_those_of_a_loop_by_hand(tmp_path, bert, settings):
    """transformers' own loss and mask, torch's Adam, clipping and linear schedule."""
    training = settings(model=bert, warmup=2, clip=0.1, dropout=0.0)
    run = Run(training, *small_sets(tmp_path, "mrpc"), "cpu")
    for module in run.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    by_hand = copy.deepcopy(run.model.model).train()
    opt = torch.optim.Adam(by_hand.parameters(), lr=1e-3, eps=1e-6)
    losses, norms = [], []
    for i in range(3):
        opt.param_groups[0]["lr"] = 1e-3 * (0.5, 1.0, 1.0)[i]
        *inputs, labels = run.source.batch(i, 0)
        loss = by_hand(**dict(zip(run.model.names, inputs, strict=True)), labels=labels).loss
        opt.zero_grad()
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(by_hand.parameters(), 0.1))
        opt.step()
        losses.append(loss.item())
    assert min(norms) < 0.1 < max(norms)  # some steps are clipped
    assert run.epoch()["train_loss"] == pytest.approx(sum(losses) / 3, rel=1e-5)
    for ours, theirs in zip(run.model.model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_clipping_at_a_norm_that_is_never_reached_changes_nothing(tmp_path, settings):
    sets = small_sets(tmp_path, "rte")
    runs = [Run(settings(data="rte", method="asam", clip=clip), *sets, "cpu") for clip in (0.0, 1e9)]
    assert runs[0].epoch()["train_loss"] == runs[1].epoch()["train_loss"]
    assert digest(runs[0].model) == digest(runs[1].model)


def test_the_heads_are_drawn_by_the_seed(tmp_path, settings):
    sets = small_sets(tmp_path, "rte")
    heads = [Run(settings(data="rte", seed=seed), *sets, "cpu").model.model.classifier.weight for seed in (0, 0, 1)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_a_record_knows_the_weights_that_were_loaded(tmp_path, deberta, bert, settings):
    sets = small_sets(tmp_path, "rte")
    runs = [
        Run(settings(data="rte", model=m, seed=s), *sets, "cpu") for m, s in ((deberta, 0), (deberta, 1), (bert, 0))
    ]
    before = [run.task.facts["encoder_weights"] for run in runs]
    runs[0].epoch()
    assert before[0] == before[1] == record(runs[0])["metrics"]["encoder_weights"]
    assert before[0] != before[2]


def test_dropout_is_directly_before_the_classifier(deberta):
    model = load_classifier(deberta, ("input_ids", "attention_mask"), 2, 0.15)
    shares = {name: m.p for name, m in model.model.named_modules() if isinstance(m, nn.Dropout)}
    assert {name: share for name, share in shares.items() if share} == {"dropout": 0.15}


def test_long_sentences_are_cut_counted_and_told(tmp_path, settings, caplog):
    train, dev = small_sets(tmp_path, "mrpc")
    with caplog.at_level(logging.WARNING, "letsam"):
        run = Run(settings(length=10), train, dev, "cpu")
    assert [x.shape for x in run.source.batch(0, 0)] == [(4, 10), (4, 10), (4, 10), (4,)]
    assert "MRPC: sentences of more than 10 tokens are cut: train " in caplog.text
    assert "10 tokens, cut: train " in record_facts(run)
    assert (run.source.batch(0, 0)[0] == 2).sum(1).tolist() == [2] * 4  # both ends of a pair are still there


@pytest.mark.parametrize(("name", "least"), [("cola", 3), ("mrpc", 5)])
def test_a_length_without_room_for_a_token_of_each_sentence(tmp_path, settings, name, least):
    sets = small_sets(tmp_path, name)
    with pytest.raises(ValueError, match=rf"^length is {least - 1}, and a row of .* has at least {least} tokens; set"):
        Run(settings(data=name, length=least - 1), *sets, "cpu")
    assert Run(settings(data=name, length=least), *sets, "cpu").source.batch(0, 0)[0].shape == (4, least)


def record_facts(run):
    run.epoch()
    return record(run)["metrics"]["length"]


def test_a_checkpoint_is_found_by_its_name(tmp_path, deberta, settings, monkeypatch):
    monkeypatch.setenv("LETSAM_CHECKPOINTS", str(tmp_path / "here"))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "some-encoder").symlink_to(deberta)
    training = settings(model="somebody/some-encoder")
    assert Run(training, *small_sets(tmp_path, "mrpc"), "cpu").epoch()["skipped"] == 0
    assert name_of(training).startswith("mrpc-some-encoder-erm-seed0-")


def test_checkpoints_that_cannot_be_loaded(tmp_path, settings, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    sets = small_sets(tmp_path, "mrpc")
    (tmp_path / "empty").mkdir()
    for checkpoint in (str(tmp_path / "empty"), "no-such/model"):
        with pytest.raises(ValueError, match=r"the checkpoint .* cannot be loaded .*LETSAM_CHECKPOINTS"):
            Run(settings(model=checkpoint), *sets, "cpu")
    with pytest.raises(ValueError, match="has no padding token"):
        Run(settings(model=save_gpt2(tmp_path / "gpt2", pad=False)), *sets, "cpu")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"model": "resnet18"}, "mrpc has sentences, and the model is 'resnet18'; give a checkpoint"),
        ({"data": "stsb", "noise": 0.2}, "stsb has scores, not classes"),
        ({"dropout": 1.0}, "dropout is 1.0; give a number from 0 to below 1"),
        ({"clip": -1.0}, "clip is -1.0; give 0 or a positive number"),
        ({"length": 0}, "length is 0; give a positive number"),
        ({"data": "cifar10", "model": "resnet18", "dropout": 0.1}, "dropout is a setting of sentences, and cifar10"),
    ],
)
def test_settings_that_do_not_fit(settings, changes, line):
    with pytest.raises(ValueError, match=line):
        settings(**changes)


def test_new_settings_are_part_of_the_identity_where_they_are_set():
    assert Training().identity == Training(eps=1e-8, clip=0.0, length=128).identity
    assert len({Training(**x).identity for x in ({}, {"eps": 1e-6}, {"clip": 1.0})}) == 3


def test_steps_and_minutes_of_a_checkpoint(tmp_path, settings):
    training = settings(batch=32, model="somebody/unknown")
    assert steps_per_epoch(training) == 115
    assert Speeds([tmp_path], "cpu").minutes(training)[0] > 0
    run = replace(training, epochs=1)
    (tmp_path / "run.json").write_text(json.dumps(run_record(run, [60.0])))
    speeds = Speeds([tmp_path], "cpu")
    assert speeds.minutes(replace(training, epochs=2)) == (pytest.approx(2.0), True)
    assert not speeds.minutes(replace(training, data="rte"))[1]  # its rows have another length


RECIPE = """
title = "Small GLUE"
source = "a test"
seeds = [0]
[train]
model = "small/deberta"
epochs = 1
batch = 4
base = "adam"
lr = 1e-3
clip = 1.0
precision = "float32"
[columns]
cola = { data = "cola" }
stsb = { data = "stsb" }
[rows]
erm = { method = "erm" }
lets-sam = { method = "lets-sam", rho = 0.05 }
[search]
dropout = [0.0, 0.1]
batch = [4, 6]
"options.lr" = [1e-4, 1e-3]
"""


@pytest.fixture
def place(tmp_path, monkeypatch, deberta):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LETSAM_DATA", str(tmp_path / "place"))
    monkeypatch.setenv("LETSAM_CHECKPOINTS", str(tmp_path / "checkpoints"))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "deberta").symlink_to(deberta)
    for name in ("cola", "stsb"):
        write_task(tmp_path / "glue", name)
    (tmp_path / "recipes" / "small").mkdir(parents=True)
    (tmp_path / "recipes" / "small" / "recipe.toml").write_text(RECIPE)
    assert main(["data", "glue", "--source", "glue"]) == 0
    return tmp_path


def test_the_commands_from_files_to_the_table(place, capsys):
    assert main(["reproduce", "small", "--plan"]) == 0
    assert "4 runs" in capsys.readouterr().out
    assert main(["reproduce", "small"]) == 0
    out = capsys.readouterr().out
    assert ", matthews " in out
    assert ", pearson " in out
    records = [json.loads(path.read_text()) for path in (place / "results" / "reproduction").glob("*.json")]
    assert len(records) == 4
    assert all(f"{score(done):.2f} (1)" in out for done in records)
    assert main(["measure", "small", "--rows", "erm"]) == 1
    assert "measures want images in memory" in capsys.readouterr().out
    assert main(["figures", "--out", "images", "--page", "page.html"]) == 0
    assert "Small GLUE" in (place / "page.html").read_text()


def test_a_missing_checkpoint_is_told_before_anything_is_trained(place):
    """Its config and tokenizer are tried; with nothing left to run it is an error at once."""
    here = Training(data="cola", model="small/deberta")
    gone = replace(here, model=str(place / "gone"))
    sets, said = loader(None, "cpu"), []
    assert lacking([("erm", "large", gone), ("erm", "small", here)], sets, said.append) == {gone.model}
    assert len(said) == 1
    assert said[0].startswith("skipped, 1 runs (erm in large): the checkpoint ")
    assert not needs(here) & {gone.model}
    with pytest.raises(ValueError, match=r"the checkpoint .*gone' cannot be loaded"):
        lacking([("erm", "large", gone), ("erm", "small", replace(here, data="rte"))], sets, said.append)
    assert len(said) == 1


def test_a_queue_goes_on_without_the_runs_of_a_missing_checkpoint(place, capsys):
    recipe = place / "recipes" / "small" / "recipe.toml"
    column = f'cola = {{ data = "cola" }}\ngone = {{ data = "cola", model = "{place / "gone"}" }}'
    recipe.write_text(recipe.read_text().replace('cola = { data = "cola" }', column))
    assert main(["reproduce", "small", "--rows", "erm"]) == 1
    said = capsys.readouterr()
    assert "skipped, 1 runs (erm in gone): the checkpoint " in said.out.replace("\n", " ")
    assert "Small GLUE (a test)" in said.out
    assert "skipped for lack of " in said.err
    assert len(list((place / "results" / "reproduction").glob("*.json"))) == 2


def test_a_search_says_what_it_costs_and_goes_on(place, capsys):
    pytest.importorskip("optuna")
    assert main(["search", "small", "--plan", "--trials", "3"]) == 0
    out = capsys.readouterr().out
    assert "12 runs" in out
    assert " 8 " in out  # points of lets-sam's grid, with the learning rate of ρ
    command = ["search", "small", "--rows", "lets-sam", "--columns", "cola", "--trials", "3"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "so optimistic" in out
    assert "options.lr" in out
    files = {p: p.stat().st_mtime_ns for p in (place / "results" / "search").glob("*.json")}
    assert 1 <= len(files) <= 3
    assert main(command) == 0
    assert files == {p: p.stat().st_mtime_ns for p in (place / "results" / "search").glob("*.json")}


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("[search]", "[other]", "no setting is called 'other'"),
        ("dropout = [0.0, 0.1]", "dropout = 0.1", "dropout has to be a setting with a list of values"),
        ("dropout = [0.0", "dropoutt = [0.0", "dropoutt has to be a setting"),
    ],
)
def test_bad_searches(place, capsys, old, new, line):
    path = place / "recipes" / "small" / "recipe.toml"
    path.write_text(path.read_text().replace(old, new))
    assert main(["search", "small", "--plan"]) == 2
    assert line in capsys.readouterr().err


def test_a_search_without_values_or_trials(place, capsys):
    assert main(["search", "small", "--trials", "0"]) == 2
    assert "--trials is 0" in capsys.readouterr().err
    path = place / "recipes" / "small" / "recipe.toml"
    path.write_text(path.read_text().split("[search]")[0])
    assert main(["search", "small"]) == 2
    assert "small has no [search]" in capsys.readouterr().err
