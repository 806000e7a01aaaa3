"""Runs on ImageNet's folders: the command, exact resume, streams, parts, broken images, no process left over."""

import json
import multiprocessing
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from letsam.cli import main
from letsam.experiments import from_disk, reproduce
from letsam.experiments.data import imagenet
from letsam.experiments.loop import Run, train_run
from letsam.experiments.models import digest
from letsam.experiments.recipe import Training
from letsam.experiments.source import ImageSet, load, parts

Capture = pytest.CaptureFixture[str]
TRAIN, TEST = 14, 6
RECIPE = """
title = "ImageNet"
source = "a test"
seeds = [0]
[train]
data = "imagenet"
epochs = 2
batch = 4
lr = 0.01
precision = "float32"
[columns]
small = { model = "resnet32" }
resnet50 = { model = "resnet50" }
[rows]
erm = { method = "erm" }
lets-sam = { method = "lets-sam" }
"""
TINY = Training(
    data="imagenet", model="resnet32", method="auto-sam", epochs=3, batch=4, lr=0.01, precision="float32", ema=0.5
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of noise, so that every image and every crop is another one."""
    root = tmp_path_factory.mktemp("images")
    for split, count in (("train", TRAIN), ("val", TEST)):
        for i in range(count):
            folder = root / split / f"n{i % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.frombytes("RGB", (48, 40), random.Random(f"{split}{i}").randbytes(48 * 40 * 3)).save(
                folder / f"{i}.JPEG"
            )
    return root


@pytest.fixture
def place(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a copy of the images, their index and a recipe; crops are small."""
    shutil.copytree(source, tmp_path / "images")
    (tmp_path / "recipes" / "imagenet").mkdir(parents=True)
    (tmp_path / "recipes" / "imagenet" / "recipe.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LETSAM_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(from_disk, "SIZE", 32)
    assert main(["data", "imagenet", "--source", "images"]) == 0
    return tmp_path


@pytest.fixture
def sets(place: Path) -> tuple[ImageSet, ImageSet]:
    return load("imagenet", None, "cpu")


@pytest.fixture
def every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "train_run", partial(train_run, every=0.0))


def record(place: Path) -> dict[str, Any]:
    (path,) = (place / "results" / "reproduction").glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def broken(path: Path) -> Callable[[], None]:
    """Cut a file; returns what mends it."""
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    return lambda: path.write_bytes(whole) and None


def test_the_command_trains_and_leaves_no_process(place: Path, capsys: Capture) -> None:
    capsys.readouterr()
    assert main(["reproduce", "imagenet", "--rows", "lets-sam", "--columns", "resnet50"]) == 0
    out = capsys.readouterr().out
    assert "lets-sam, resnet50, imagenet, seed 0: epoch 2/2" in out
    found = record(place)
    assert len(found["rows"]) == 2
    assert f"{100 * found['result']['test_accuracy']:.2f} (1)" in out
    assert found["result"]["rho"] is not None
    assert not multiprocessing.active_children()
    assert found["data"]["partial"]
    assert found["data"]["train"]["images"] == 14
    assert "(1), a part of the set" in " ".join(out.split())


@pytest.mark.parametrize("split", ["train", "val"])
def test_an_unreadable_image_is_one_line_and_the_same_command_goes_on(
    split: str, place: Path, capsys: Capture, every_epoch: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["reproduce", "imagenet", "--rows", "lets-sam", "--columns", "small"]
    assert main(command) == 0
    whole = record(place)["weights"]
    shutil.rmtree("results")
    shutil.rmtree("runs")
    mend, advance = None, Run.advance

    def breaks(run: Run) -> Any:
        nonlocal mend
        if mend is None and run.rows:  # the second epoch
            mend = broken(place / "images" / split / "n0" / "0.JPEG")
            run.close()  # what was read ahead is forgotten
        return advance(run)

    monkeypatch.setattr(Run, "advance", breaks)
    capsys.readouterr()
    assert main(command) == 1
    said = capsys.readouterr()
    (line,) = (line for line in said.out.splitlines() if f"images/{split}/n0/0.JPEG cannot be read" in line)
    assert line.startswith("lets-sam, resnet32, imagenet, seed 0: ")
    assert line.endswith("put a good copy in its place")
    assert said.err == "letsam: 1 of 1 runs failed; their lines above say why\n"
    assert not multiprocessing.active_children()
    assert mend is not None
    mend()
    assert main(command) == 0
    assert "goes on after epoch 1" in capsys.readouterr().out
    assert record(place)["weights"] == whole


def test_a_run_that_meets_an_unreadable_image_keeps_its_steps_and_the_next_run_has_its_turn(
    place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    mend, advance = None, Run.advance

    def breaks(run: Run) -> Any:
        nonlocal mend
        if run.training.method == "lets-sam" and mend is not None:
            mend()
        elif mend is None and run.place[:2] == (1, 2):
            mend = broken(place / "images" / "train" / "n0" / "0.JPEG")
            run.close()  # what was read ahead is forgotten
        return advance(run)

    monkeypatch.setattr(Run, "advance", breaks)
    assert main(["reproduce", "imagenet", "--columns", "small"]) == 1
    assert capsys.readouterr().err == "letsam: 1 of 2 runs failed; their lines above say why\n"
    assert record(place)["training"]["method"] == "lets-sam"
    monkeypatch.undo()
    monkeypatch.chdir(place)
    monkeypatch.setenv("LETSAM_DATA", str(place / "data"))
    monkeypatch.setattr(from_disk, "SIZE", 32)
    assert main(["reproduce", "imagenet", "--columns", "small"]) == 0
    assert "erm, resnet32, imagenet, seed 0: goes on after epoch " in capsys.readouterr().out


def test_a_plan_needs_no_images_and_a_run_says_how_to_point_to_them(place: Path, capsys: Capture) -> None:
    empty = ["--data", str(place / "empty")]
    capsys.readouterr()
    assert main(["reproduce", "imagenet", "--plan", *empty]) == 0
    assert "4 runs" in capsys.readouterr().out
    assert main(["reproduce", "imagenet", *empty]) == 2
    error = capsys.readouterr().err
    assert "run letsam data imagenet --source FOLDER first" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("validation", ["training", "held-out"])
def test_resume_is_exact(validation: str, sets: tuple[ImageSet, ImageSet]) -> None:
    training = replace(TINY, validation=validation, noise=0.3)
    whole, half, rest = (Run(training, *sets, "cpu") for _ in range(3))
    for _ in range(3):
        whole.epoch()
    half.epoch()
    state = half.state_dict()
    half.close()
    rest.load_state_dict(state)
    while len(rest.rows) < 3:
        rest.epoch()
    assert digest(rest.model) == digest(whole.model)
    assert rest.rows[-1]["test_loss"] == whole.rows[-1]["test_loss"]
    for run in (whole, rest):
        run.close()
    assert not multiprocessing.active_children()


def test_a_run_that_fails_leaves_no_process(sets: tuple[ImageSet, ImageSet], tmp_path: Path) -> None:
    def fail(_: object) -> None:
        assert multiprocessing.active_children()
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        train_run(lambda: Run(TINY, *sets, "cpu"), tmp_path, fail, print)
    assert not multiprocessing.active_children()


def test_reading_does_not_touch_the_random_state(sets: tuple[ImageSet, ImageSet]) -> None:
    run, before = Run(TINY, *sets, "cpu"), torch.get_rng_state()
    run.source.batch(0, 0)
    run.evaluate(1)
    run.close()
    assert torch.equal(torch.get_rng_state(), before)


def test_streams(sets: tuple[ImageSet, ImageSet]) -> None:
    source = Run(replace(TINY, validation="held-out", batch=3), *sets, "cpu").source
    assert source.steps == 5  # 13 images; one is held out
    batches = [source.batch(i, 0) for i in range(10)]
    assert sum(len(y) for _, y in batches) == 2 * 13
    assert len({x.numpy().tobytes() for batch, _ in batches for x in batch}) == 2 * 13  # a crop is new every epoch
    held = [source.batch(i, 1)[0] for i in range(4)]
    assert {len(x) for x in held} == {1}
    assert len({x.numpy().tobytes() for x in held}) == 4  # one image, other crops
    assert torch.equal(source.batch(8, 0)[0], batches[8][0])  # out of turn
    assert torch.equal(source.batch(9, 0)[0], batches[9][0])
    tests = list(source.test())
    assert torch.cat([y for _, y in tests]).tolist() == [0, 0, 0, 1, 1, 1]
    source.close()
    plain = Run(replace(TINY, augment=False, batch=TRAIN), *sets, "cpu").source
    one, two = (sorted(x.numpy().tobytes() for x in plain.batch(epoch, 0)[0]) for epoch in range(2))
    assert one == two  # the middles
    plain.close()
    assert not multiprocessing.active_children()


def test_parts_of_files(sets: tuple[ImageSet, ImageSet]) -> None:
    train = sets[0]
    assert isinstance(train, imagenet.Files)
    kept, held, both = parts(replace(TINY, images=10, validation="held-out"), train)
    names = [set(part.index.paths["train"].tolist()) for part in (kept, held)]
    assert (len(kept), len(held)) == (9, 1)
    assert names[0] | names[1] == set(both.index.paths["train"].tolist())
    assert len(both) == 10
    for path, label in zip(kept.index.paths["train"], kept.labels.tolist(), strict=True):
        assert path.decode().startswith(f"train/n{label}/")
    noisy, same, _ = parts(replace(TINY, noise=0.9), train)
    assert noisy is same
    assert noisy.index.paths["train"].tolist() == train.index.paths["train"].tolist()
    assert not torch.equal(noisy.labels, train.labels)
    with pytest.raises(TypeError, match="two kinds"):
        Run(TINY, train, load("digits", None, "cpu")[1], "cpu")


def test_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, gpus, expected in ((1, 0, 1), (2, 1, 1), (8, 1, 7), (64, 1, 16), (64, 8, 7)):
        monkeypatch.setattr(from_disk.os, "sched_getaffinity", lambda _, cores=cores: range(cores), raising=False)
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        assert from_disk.workers() == expected
