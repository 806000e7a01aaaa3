"""The training loop on the digits, on the CPU: every method, exact resume, kills, bad checkpoints."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace

import pytest
import torch

import letsam
from letsam.experiments.checkpoint import load_checkpoint, save_checkpoint
from letsam.experiments.data.images import load
from letsam.experiments.loop import Run, train_run
from letsam.experiments.models import digest
from letsam.experiments.recipe import Training
from letsam.experiments.record import environment
from letsam.experiments.reproduce import record
from letsam.experiments.source import parts
from letsam.experiments.training import PLAIN

TINY = Training(
    data="digits",
    model="small-cnn",
    method="sam",
    epochs=3,
    batch=40,
    lr=0.03,
    images=200,
    precision="float32",
    compile=False,
)


def make(training=TINY):
    return Run(training, load("digits"), load("digits", split="test"), "cpu")


def silent(*_):
    pass


def finished(training, folder, **options):
    return train_run(lambda: make(training), folder, silent, silent, **options)


@pytest.mark.parametrize("method", letsam.list_methods())
def test_every_method_trains(method, tmp_path):
    run = finished(replace(TINY, method=method, epochs=2), tmp_path)
    first, last = run.rows
    assert last["train_loss"] < first["train_loss"]
    assert last["skipped"] == 0
    assert last["test_accuracy"] is not None
    assert (last["rho"] is None) == (method == "erm")


@pytest.mark.parametrize(
    ("method", "axis"), [("rst", "policy"), ("esam", "perturbation"), ("auto-rsam", "perturbation")]
)
def test_what_a_method_draws_depends_on_the_seed(method, axis):
    def drawing(**changes):
        return getattr(make(replace(TINY, method=method, **changes)).opt, axis).seed

    assert [drawing(seed=seed) for seed in (0, 1, 2)] == [0, 1, 2]
    assert drawing(seed=1, options={"seed": 7}) == 7


@pytest.mark.parametrize(
    "changes",
    [
        {"base": "adamw", "lr": 1e-3},
        {"base": "adam", "lr": 1e-3, "schedule": "linear", "warmup": 4},
        {"schedule": "exponential", "label_smoothing": 0.1},
        {"noise": 0.4, "validation": "held-out", "method": "auto-sam"},
        {"augment": False},
        {"cutout": 3},
        {"precision": "bfloat16"},
        {"images": None, "batch": 2000, "epochs": 1},
    ],
    ids=str,
)
def test_settings_do_something(changes, tmp_path):
    run, other = finished(replace(TINY, **changes), tmp_path), finished(TINY, tmp_path)
    assert len(run.rows) == run.training.epochs
    assert digest(run.model) != digest(other.model)


def test_the_learning_rate_follows_the_schedule():
    run = make()
    for _ in range(3):
        run.epoch()
    assert run.rows[-1]["lr"] == pytest.approx(0.03 * 0.5 * (1 + math.cos(math.pi * 14 / 15)))


def test_a_batch_is_a_function_of_seed_and_step():
    one, two = make(), make()
    two.epoch()  # draws do not depend on what was drawn before
    for number in (8, 4):
        for a, b in zip(one.source.batch(number, 0), two.source.batch(number, 0), strict=True):
            assert torch.equal(a, b)
    seen = torch.cat([one.source.batch(i, 0)[1] for i in range(one.steps)])
    assert torch.equal(seen.sort().values, parts(TINY, load("digits"))[0].labels.sort().values)
    assert not torch.equal(one.source.batch(0, 0)[0], one.source.batch(0, 1)[0])


def test_validation_batches_are_made_for_updates_alone(tmp_path):
    """One after the other through the held-out part, whatever the training does in between; also after a resume."""
    training = replace(TINY, method="auto-sam", validation="held-out", options={"every": 4}, epochs=2)

    def listened():
        run, numbers = make(training), []
        of = run.source.batch
        run.source.batch = lambda number, stream: (numbers.append(number) if stream else None, of(number, stream))[1]
        return run, numbers

    run, numbers = listened()
    run.epoch()
    assert run.steps == 5
    assert numbers == [0, 1]
    resumed, more = listened()
    resumed.load_state_dict(run.state_dict())
    resumed.epoch()
    assert more == [2]


def test_an_epoch_has_the_steps_of_the_whole_set_also_where_a_part_is_held_out():
    whole, held = (make(replace(TINY, batch=20, validation=where)) for where in ("training", "held-out"))
    assert whole.steps == held.steps == 10
    kept = parts(held.training, load("digits"))[0].labels
    assert len(kept) == 180
    seen = torch.cat([held.source.batch(i, 0)[1] for i in range(9, 18)])  # after nine steps the next order begins
    assert torch.equal(seen.sort().values, kept.sort().values)


def test_parts():
    train, validation, _ = parts(TINY, load("digits"))
    assert train is validation
    assert len(train) == 200
    kept, held, both = parts(replace(TINY, validation="held-out"), load("digits"))
    assert (len(kept), len(held), len(both)) == (180, 20, 200)
    noisy, *_ = parts(replace(TINY, noise=0.5), load("digits"))
    assert 0.3 < float((noisy.labels != train.labels).double().mean()) < 0.6


@pytest.mark.parametrize("method", ["sam", "lets-sam", "auto-sam"])
@pytest.mark.parametrize("base", [*PLAIN, "nesterov"])
def test_every_base_trains_and_resumes_exactly(base, method, tmp_path):
    how = {"base": "sgd", "nesterov": True} if base == "nesterov" else {"base": base, "lr": 1e-3}
    validation = "held-out" if method == "auto-sam" else "training"
    training = replace(TINY, method=method, validation=validation, options={}, epochs=2, **how)
    one, other = make(training), make(training)
    first = one.epoch()
    assert digest(one.model) != digest(other.model)
    save_checkpoint(tmp_path / "c.safetensors", one.state_dict())
    other.load_state_dict(load_checkpoint(tmp_path / "c.safetensors"))
    last = one.epoch()
    assert math.isfinite(last["train_loss"])
    assert last["skipped"] == first["skipped"] == 0
    assert other.epoch()["train_loss"] == last["train_loss"]
    assert digest(other.model) == digest(one.model)
    assert type(one.opt.base).__name__.lower() == training.base


@pytest.mark.parametrize("method", ["erm", "looksam", "ae-sam", "lets-asam", "auto-sam"])
@pytest.mark.parametrize("base", ["sgd", "adamw"])
def test_resume_is_exact(method, base, tmp_path):
    training = replace(TINY, method=method, base=base)
    (tmp_path / "whole").mkdir()
    whole = finished(training, tmp_path / "whole")
    half = make(training)
    half.epoch()
    save_checkpoint(tmp_path / f"{training.identity}.safetensors", half.state_dict())
    torch.manual_seed(999)
    resumed = finished(training, tmp_path)
    assert digest(resumed.model) == digest(whole.model)
    assert [row["train_loss"] for row in resumed.rows] == [row["train_loss"] for row in whole.rows]


def test_what_was_held_out_comes_back_for_the_last_epochs(tmp_path):
    """The radius is that of the epoch before from there on, also where the run was resumed."""
    options = {"every": 1, "gated": False, "bounds": (1e-5, 10.0)}
    training = replace(TINY, method="auto-sam", options=options, validation="held-out", epochs=4, back=0.5, batch=20)
    run, streams = make(training), []
    of = run.source.batch
    run.source.batch = lambda number, stream: (streams.append((len(run.rows), stream)), of(number, stream))[1]
    for _ in range(4):
        run.epoch()
    assert set(streams) == {(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (3, 2)}
    radii = [row["rho"] for row in run.rows]
    assert radii[0] != radii[1] == radii[2] == radii[3]
    assert [row["passes"] for row in run.rows] == [3, 3, 2, 2]
    seen = [of(number, 2)[1] for number in range(20)]
    assert len(torch.cat(seen)) == 400
    for done in (1, 3):
        half = make(training)
        for _ in range(done):
            half.epoch()
        save_checkpoint(tmp_path / f"{training.identity}.safetensors", half.state_dict())
        assert digest(finished(training, tmp_path).model) == digest(run.model)


def test_only_what_was_taken_can_be_given_back():
    for wrong in (
        {"back": 0.2},
        {"data": "multi30k", "model": "transformer-tiny", "validation": "held-out", "back": 0.2},
    ):
        with pytest.raises(ValueError, match="back gives back what validation = 'held-out' took from the training set"):
            replace(TINY, **wrong)


@pytest.mark.parametrize("damage", ["other settings", "cut", "another model", "a list", "no rows"])
def test_a_checkpoint_that_does_not_fit_is_kept_and_the_run_starts_anew(damage, tmp_path):
    path, said = tmp_path / f"{TINY.identity}.safetensors", []
    state = make(replace(TINY, seed=1)).state_dict()
    if damage != "other settings":
        state |= {"identity": TINY.identity}
    if damage == "another model":
        state["model"] = {name: value for name, value in state["model"].items() if "bias" not in name}
    elif damage == "no rows":
        del state["rows"]
    save_checkpoint(path, [state] if damage == "a list" else state)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-10])
    before = path.read_bytes()
    run = train_run(make, tmp_path, silent, said.append)
    assert len(said) == 1
    assert "starts anew" in said[0]
    assert "\n" not in said[0]
    bad = tmp_path / f"{path.name}.bad"
    assert str(bad) in said[0]
    assert bad.read_bytes() == before
    (tmp_path / "whole").mkdir()
    assert digest(run.model) == digest(finished(TINY, tmp_path / "whole").model)


def test_a_run_that_goes_on_elsewhere_keeps_where_it_was(tmp_path):
    """The record has the last environment as ever, and all of them with their first epochs where there are several."""
    path, said, half = tmp_path / f"{TINY.identity}.safetensors", [], make()
    half.epoch()
    here = environment("cpu")
    state = half.state_dict() | {"history": [{"first_epoch": 1, "environment": here | {"torch": "1.0"}}]}
    save_checkpoint(path, state)
    run = train_run(make, tmp_path, silent, said.append)
    found = record(run)
    assert [(part["first_epoch"], part["environment"]["torch"]) for part in found["history"]] == [
        (1, "1.0"),
        (2, torch.__version__),
    ]
    assert found["environment"] == here
    assert said[1].endswith(f"the last digits may differ: torch 1.0 → {torch.__version__}")
    assert record(finished(TINY, tmp_path))["history"] == found["history"]
    (tmp_path / "whole").mkdir()
    assert "history" not in record(finished(TINY, tmp_path / "whole"))
    for older in ("history", "part"):
        del state[older]
    save_checkpoint(path, state)  # as an older version has left it
    assert digest(finished(TINY, tmp_path).model) == digest(run.model)


@pytest.mark.parametrize("average", [{}, {"average": 1}], ids=str)
def test_a_finished_run_keeps_its_weights_and_rows_alone_and_gives_the_same_record_again(average, tmp_path):
    training, said = replace(TINY, base="adamw", **average), []
    run = finished(training, tmp_path)
    state = load_checkpoint(tmp_path / f"{training.identity}.safetensors")
    assert state.keys() == {"identity", "model", "average", "rows", "history"}
    again = train_run(lambda: make(training), tmp_path, silent, said.append)
    assert said == [f"{training}: goes on after epoch 3"]
    assert record(again) == record(run)


@pytest.mark.parametrize("trouble", ["no memory", "an unknown optimizer", "a folder"])
def test_trouble_that_is_not_the_checkpoints_leaves_it_alone(trouble, tmp_path, monkeypatch):
    path, run = tmp_path / f"{TINY.identity}.safetensors", make()
    run.epoch()
    state = run.state_dict()
    if trouble == "an unknown optimizer":
        state["optimizer"] = {"param_groups": []}
    save_checkpoint(path, state)
    if trouble == "a folder":
        path.rename(tmp_path / "kept")
        path.mkdir()
    elif trouble == "no memory":
        monkeypatch.setattr(torch.nn.Module, "load_state_dict", no_memory)
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(RuntimeError, match=r"cannot be loaded .* mend that, or move it to start anew") as error:
        finished(TINY, tmp_path)
    assert "\n" not in str(error.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def no_memory(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB")


CHILD = """
import json, sys, torch
from pathlib import Path
torch.set_num_threads(1)
from letsam.experiments.data.images import load
from letsam.experiments.loop import Run, train_run
from letsam.experiments.models import digest
from letsam.experiments.recipe import Training
training = Training(**json.loads(sys.argv[1]))
run = train_run(
    lambda: Run(training, load("digits"), load("digits", split="test"), "cpu"),
    Path(sys.argv[2]), lambda row: None, lambda text: None, every=0.0,
)
print(digest(run.model))
"""


def test_killed_at_ten_moments_it_ends_with_the_same_bits(tmp_path):
    training = replace(TINY, method="auto-gsam", epochs=24)
    (tmp_path / "whole").mkdir()
    whole = digest(finished(training, tmp_path / "whole").model)
    command = [sys.executable, "-c", CHILD, json.dumps(asdict(training)), str(tmp_path)]
    checkpoint = tmp_path / f"{training.identity}.safetensors"
    moments, kills = random.Random(0), 0
    while kills < 10:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        # Importing takes most of a short run: wait until it trains, then some more.
        while process.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before):
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.03))
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        kills += 1
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert kills == 10
    assert out.strip() == whole
