"""ImageNet's folders: the index, the crops, the batches of worker processes, damaged files."""

import random
from pathlib import Path

import pytest
import torch
from PIL import Image
from small_sets import image_folders

from letsam.cli import main
from letsam.experiments.data import imagenet
from letsam.experiments.data.imagenet_batches import batches, center_crop, random_box, random_crop

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    root = image_folders(tmp_path / "images")
    assert main(["data", "imagenet", "--source", str(root), "--folder", str(tmp_path / "place")]) == 0
    return tmp_path / "place"


def brightness(images: torch.Tensor, index: imagenet.Index) -> torch.Tensor:
    """Back from normalised pixels to 0 to 255."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (index.mean, index.std))
    return (images.float() * std + mean) * 255


def test_command_and_index(place: Path, capsys: Capture) -> None:
    assert main(["data", "imagenet", "--folder", str(place)]) == 0
    out = capsys.readouterr().out
    for part in ("3 classes", "15", "6", "0.4850", "a part of ImageNet", "sha256 of the list"):
        assert part in out
    index = imagenet.load(place)
    assert index.classes == ("n00000000", "n00000001", "n00000002")
    assert index.labels["train"].tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert index.paths["test"][0] == b"val/n00000000/n00000000_0.JPEG"
    assert all((index.root / path.decode()).is_file() for path in index.paths["train"])


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_normalised_images_with_their_labels(workers: int, place: Path) -> None:
    index = imagenet.load(place)
    seen = []
    for images, labels in batches(index, "train", 4, seed=1, workers=workers, size=32):
        assert images.shape == (len(labels), 3, 32, 32)
        assert images.is_contiguous(memory_format=torch.channels_last)
        level = brightness(images, index).mean((1, 2, 3))
        torch.testing.assert_close(level, 40.0 + 80 * labels, atol=3, rtol=0)
        seen += labels.tolist()
    assert sorted(seen) == index.labels["train"].tolist()
    assert seen != sorted(seen)
    test = list(batches(index, "test", 4, workers=workers, size=32, dtype=torch.bfloat16))
    assert torch.equal(torch.cat([labels for _, labels in test]), index.labels["test"])
    assert test[0][0].dtype == torch.bfloat16


def test_workers_and_a_resume_change_nothing(tmp_path: Path) -> None:
    root = tmp_path / "images"
    for split in ("train", "val"):
        (root / split / "n1").mkdir(parents=True)
        for i in range(7):
            noise = random.Random(i).randbytes(40 * 30 * 3)
            Image.frombytes("RGB", (40, 30), noise).save(root / split / "n1" / f"{i}.jpg")
    imagenet.save(tmp_path, root, imagenet.scan(root))
    index = imagenet.load(tmp_path)

    def epoch(**options: int) -> list[torch.Tensor]:
        return [images for images, _ in batches(index, "train", 3, size=16, **options)]

    whole = epoch(workers=0)
    for other, expected in ((epoch(workers=2), whole), (epoch(workers=0, start=1), whole[1:])):
        assert all(torch.equal(x, y) for x, y in zip(other, expected, strict=True))
    assert not torch.equal(epoch(workers=0, epoch=1)[0], whole[0])


def test_a_truncated_image_is_named(place: Path) -> None:
    index = imagenet.load(place)
    path = index.root / "val" / "n00000001" / "n00000001_0.JPEG"
    path.write_bytes(path.read_bytes()[:300])
    for workers in (0, 1):
        with pytest.raises(ValueError, match=r"n00000001_0.JPEG cannot be read .*put a good copy") as caught:
            list(batches(index, "test", 2, workers=workers, size=16))
        assert "\n" not in str(caught.value)


def test_wrong_folders(tmp_path: Path, capsys: Capture) -> None:
    def said(root: Path) -> str:
        assert main(["data", "imagenet", "--source", str(root), "--folder", str(tmp_path / "place")]) == 2
        return capsys.readouterr().err

    assert "train/<wnid>/*.JPEG" in said(tmp_path / "nothing")
    root = image_folders(tmp_path / "images")
    (root / "val" / "n00000002").rename(root / "val" / "other")
    assert "no counterpart in train/" in said(root)
    (root / "val" / "other").rename(root / "val" / "n00000002")
    (root / "train" / "n9").mkdir()
    assert "n9 has no images" in said(root)
    (root / "train").rename(root / "old")
    (root / "train").mkdir()
    assert "has no class folders" in said(root)
    assert not (tmp_path / "place").exists()


def test_a_damaged_or_outdated_index(place: Path, tmp_path: Path) -> None:
    (tmp_path / "images").rename(tmp_path / "moved")
    with pytest.raises(ValueError, match="no longer in"):
        imagenet.load(place)
    path = place / imagenet.FILE
    path.write_text(path.read_text().replace("n00000001_0", "n00000001_7"))
    with pytest.raises(ValueError, match="is damaged: run letsam data imagenet"):
        imagenet.load(place)
    path.write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        imagenet.load(place)
    with pytest.raises(ValueError, match="run letsam data imagenet --source FOLDER first"):
        imagenet.load(tmp_path / "nowhere")


def test_boxes_have_the_right_area_and_ratio() -> None:
    draw = random.Random(0)
    for width, height in ((500, 375), (100, 100), (200, 300)):
        for _ in range(300):
            left, top, right, bottom = random_box(width, height, draw)
            assert 0 <= left < right <= width
            assert 0 <= top < bottom <= height
            w, h = right - left, bottom - top
            assert 0.07 < w * h / (width * height) <= 1
            assert 0.7 < w / h < 1.4


def test_a_strip_of_an_image_falls_back_to_its_middle() -> None:
    assert random_box(1000, 10, random.Random(0)) == (493, 0, 506, 10)
    assert random_box(10, 1000, random.Random(0)) == (0, 493, 10, 506)
    assert random_box(1, 1, random.Random(0)) == (0, 0, 1, 1)


def test_crops() -> None:
    image = Image.new("RGB", (400, 300))
    for x in range(400):
        image.paste((x * 255 // 399, 0, 0), (x, 0, x + 1, 300))
    middle = center_crop(image, 224)
    assert middle.size == (224, 224)
    assert abs(middle.getpixel((112, 112))[0] - 127) < 3
    flips = 0
    for seed in range(200):
        crop = random_crop(image, 32, random.Random(seed))
        assert crop.size == (32, 32)
        flips += crop.getpixel((0, 16))[0] > crop.getpixel((31, 16))[0]
    assert 70 < flips < 130
    assert center_crop(Image.new("RGB", (9, 2000)), 224).size == (224, 224)
