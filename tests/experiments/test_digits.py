"""The digits: the right file, a fixed split, exact noise."""

import gzip
import hashlib
from importlib import resources

import pytest
import torch

from letsam.experiments.data import digits


def rows(x: torch.Tensor) -> list[bytes]:
    return [image.numpy().tobytes() for image in x]


def test_the_file_is_the_one_named_in_its_attribution() -> None:
    folder = resources.files("letsam.experiments.data")
    packed = folder.joinpath("digits.csv.gz").read_bytes()
    assert hashlib.sha256(packed).hexdigest() == digits.SHA256
    assert len(gzip.decompress(packed).splitlines()) == 1797
    text = folder.joinpath("digits.md").read_text(encoding="utf-8")
    assert digits.SHA256 in text
    assert "CC BY 4.0" in text


def test_a_damaged_file_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "SHA256", "0" * 64)
    with pytest.raises(RuntimeError, match="damaged"):
        digits.load()


def test_images_and_classes() -> None:
    x, y = digits.load()
    assert x.shape == (1797, 1, 8, 8)
    assert x.dtype == torch.float32
    assert (x.min(), x.max()) == (0, 1)
    assert y.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_split_covers_everything_once() -> None:
    task, (x, _) = digits.task(seed=3), digits.load()
    assert (len(task.train_x), len(task.test_x)) == (1000, 797)
    assert sorted(rows(task.train_x) + rows(task.test_x)) == sorted(rows(x))
    assert len(task.noisy) == 0


def test_split_depends_on_the_seed_alone() -> None:
    one, same, noisy, other = digits.task(1), digits.task(1), digits.task(1, noise=0.4), digits.task(2)
    assert torch.equal(one.train_x, same.train_x)
    assert torch.equal(one.train_x, noisy.train_x)
    assert torch.equal(one.test_y, noisy.test_y)
    assert not torch.equal(one.train_x, other.train_x)


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.2, 0.4, 1.0])
def test_noise_is_exact_and_always_another_class(noise: float) -> None:
    clean, noisy = digits.task(5), digits.task(5, noise)
    changed = (clean.train_y != noisy.train_y).nonzero().flatten()
    assert torch.equal(changed, noisy.noisy)
    assert len(changed) == round(1000 * noise)
    assert torch.equal(noisy.train_y, digits.task(5, noise).train_y)


def test_noise_is_uniform_over_the_other_classes() -> None:
    labels = torch.zeros(90_000, dtype=torch.int64)
    counts = digits.add_noise(labels, 1.0, seed=0)[0].bincount(minlength=10)
    assert counts[0] == 0
    assert ((counts[1:] - 10_000).abs() < 500).all()
