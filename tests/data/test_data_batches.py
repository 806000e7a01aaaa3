"""Augmentation against a slow loop, the order of the samples, and label noise."""

import numpy as np
import pytest
import torch

from letsam.experiments.data import digits
from letsam.experiments.data.augment import augment, crop_flip, cut_out_, normalise
from letsam.experiments.data.images import Images
from letsam.experiments.data.noise import noise_record, symmetric_noise
from letsam.experiments.data.sampler import batch_indices, batches, perm

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def images(n: int = 40, channels: int = 3, height: int = 32, width: int = 32) -> Images:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (n, channels, height, width), generator=g, dtype=torch.uint8)
    mean, std = (0.49, 0.48, 0.44)[:channels], (0.24, 0.25, 0.26)[:channels]
    return Images(x, torch.randint(0, 10, (n,), generator=g), 10, mean, std)


def slow(data: Images, seed: int, padding: int) -> np.ndarray:
    """One image at a time, as the usual transforms do it: pad, crop, flip, divide, normalise."""
    offsets = 2 * padding + 1
    draws = torch.randint(2 * offsets**2, (len(data),), generator=torch.Generator().manual_seed(seed)).tolist()
    out = []
    for image, draw in zip(data.images.numpy(), draws, strict=True):
        (top, left), flip = divmod(draw // 2, offsets), draw % 2
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        crop = padded[:, top : top + image.shape[1], left : left + image.shape[2]]
        crop = crop[:, :, ::-1] if flip else crop
        mean, std = (np.array(values)[:, None, None] for values in (data.mean, data.std))
        out.append((crop / 255 - mean) / std)
    return np.stack(out)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("channels", "height", "width", "padding"), [(3, 32, 32, 4), (1, 28, 28, 4), (3, 5, 9, 2), (3, 8, 8, 0)]
)
def test_augment_equals_a_loop_over_images(device: str, channels: int, height: int, width: int, padding: int) -> None:
    data = images(60, channels, height, width)
    expected = torch.from_numpy(slow(data, seed=3, padding=padding)).float()
    generator = torch.Generator().manual_seed(3)
    got = augment(data.images.to(device), data, generator, padding=padding)
    assert got.is_contiguous()
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 16), (9, 5, 3), (6, 8, 20)])
def test_cutout_equals_a_loop_over_images(device: str, height: int, width: int, size: int) -> None:
    data = images(200, 3, height, width)
    plain = augment(data.images.to(device), data, torch.Generator().manual_seed(3)).cpu()
    got = augment(data.images.to(device), data, torch.Generator().manual_seed(3), cutout=size).cpu()
    rng = torch.Generator().manual_seed(3)
    crop_flip(data.images, rng)  # draws first
    for image, draw in zip(plain, torch.randint(2 * height * width, (200,), generator=rng).tolist(), strict=True):
        middle, cut = divmod(draw, 2)
        top, left = middle // width - size // 2, middle % width - size // 2
        if cut:
            image[:, max(0, top) : max(0, top + size), max(0, left) : max(0, left + size)] = 0
    assert torch.equal(got, plain)


def test_cutout_blanks_half_of_the_images_and_every_place_equally_often() -> None:
    cut = cut_out_(torch.ones(80_000, 1, 4, 5), torch.Generator().manual_seed(0), 1)[:, 0]
    assert set(cut.sum((1, 2)).tolist()) == {19, 20}
    blanked = (cut == 0).sum(0)
    assert blanked.sum() == pytest.approx(40_000, abs=4 * 141)  # four standard deviations
    assert ((blanked - 2000).abs() < 4 * 45).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_type_and_layout_change_no_value(dtype: torch.dtype, channels_last: bool) -> None:
    data = images()
    plain = augment(data.images, data, torch.Generator().manual_seed(0), cutout=5)
    generator = torch.Generator().manual_seed(0)
    got = augment(data.images, data, generator, cutout=5, dtype=dtype, channels_last=channels_last)
    assert got.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    assert torch.equal(got, plain.to(dtype))


def test_augment_depends_on_the_generator_alone() -> None:
    data = images()
    one, again, other = (crop_flip(data.images, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    generator = torch.Generator().manual_seed(1)
    first, second = crop_flip(data.images, generator), crop_flip(data.images, generator)
    assert torch.equal(first, one)
    assert not torch.equal(second, one)


def test_every_shift_and_both_sides_come_equally_often() -> None:
    marked = torch.zeros(40_000, 1, 9, 9, dtype=torch.uint8)
    marked[:, :, 4, 3] = 1  # left of the middle, so that a flip shows
    got = crop_flip(marked, torch.Generator().manual_seed(0), padding=1)
    counts = got.sum((0, 1)).float()
    assert counts.sum() == 40_000
    assert (counts[3:6, [2, 3, 5, 6]] - 40_000 / 18).abs().max() < 300
    assert (counts[3:6, 4] - 40_000 / 9).abs().max() < 400


def test_normalised_training_pixels_have_mean_0_and_std_1() -> None:
    x = images(200).images
    pixels = x.double() / 255
    data = Images(
        x, torch.zeros(200), 10, tuple(pixels.mean((0, 2, 3)).tolist()), tuple(pixels.std((0, 2, 3)).tolist())
    )
    got = normalise(x, data).double()
    torch.testing.assert_close(got.mean((0, 2, 3)), torch.zeros(3).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(got.std((0, 2, 3)), torch.ones(3).double(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_batches_of_an_epoch_are_its_order_in_parts(device: str) -> None:
    order = perm(7, 2, 103)
    assert torch.equal(order.sort().values, torch.arange(103))
    parts = [batch_indices(7, 2, i, 10, 103, device) for i in reversed(range(batches(10, 103)))][::-1]
    assert [len(part) for part in parts] == [10] * 10 + [3]
    assert torch.equal(torch.cat(parts).cpu(), order)
    assert parts[0].device.type == perm(7, 2, 103, device).device.type == device


def test_orders_differ_and_cannot_be_spoilt() -> None:
    one = perm(0, 0, 1000)
    for other in (perm(0, 1, 1000), perm(1, 0, 1000), perm(1, 1, 1000), perm(10, 0, 1000)):
        assert (one == other).sum() < 20
    perm(0, 0, 1000).zero_()
    batch_indices(0, 0, 0, 10, 1000).zero_()
    assert torch.equal(perm(0, 0, 1000), one)
    assert perm(0, 0, 8).tolist() == [5, 6, 7, 2, 0, 4, 3, 1]  # the records of old runs rely on it


def test_a_batch_that_is_not_there() -> None:
    for i in (-1, 3):
        with pytest.raises(ValueError, match="i is"):
            batch_indices(0, 0, i, 4, 10)
    for size in (0, 11):
        with pytest.raises(ValueError, match="batch is"):
            batch_indices(0, 0, 0, size, 10)


LABELS = torch.arange(50_000) % 10


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
def test_noise_of_both_kinds(rate: float) -> None:
    other = symmetric_noise(LABELS, 10, rate, seed=0, kind="other")
    assert (other != LABELS).sum() == round(50_000 * rate)
    anything = symmetric_noise(LABELS, 10, rate, seed=0)
    assert abs(int((anything != LABELS).sum()) - 50_000 * rate * 0.9) < 300
    for noisy in (other, anything):
        counts = torch.bincount(noisy[LABELS == 3], minlength=10)[[0, 1, 2, 4, 5, 6, 7, 8, 9]].float()
        assert counts.std() < 50
        assert (noisy.dtype, int(noisy.min()), int(noisy.max())) == (torch.int64, 0, 9)


@pytest.mark.parametrize("device", DEVICES)
def test_noise_depends_on_the_seed_alone(device: str) -> None:
    one = symmetric_noise(LABELS.to(device), 10, 0.4, seed=1)
    assert one.device.type == device
    assert torch.equal(one.cpu(), symmetric_noise(LABELS, 10, 0.4, seed=1))
    assert not torch.equal(one.cpu(), symmetric_noise(LABELS, 10, 0.4, seed=2))
    assert torch.equal(LABELS, torch.arange(50_000) % 10)
    _, y = digits.load()
    assert torch.equal(symmetric_noise(y, 10, 0.3, seed=5, kind="other"), digits.add_noise(y, 0.3, 5)[0])


def test_noise_record() -> None:
    noisy = symmetric_noise(LABELS, 10, 0.4, seed=1)
    record = noise_record(LABELS, noisy)
    assert record["changed"] == int((noisy != LABELS).sum())
    assert record["labels_sha256"] != noise_record(LABELS, LABELS)["labels_sha256"]
    assert noise_record(LABELS, LABELS)["changed"] == 0


def test_wrong_noise() -> None:
    with pytest.raises(ValueError, match=r"rate is 1\.2"):
        symmetric_noise(LABELS, 10, 1.2, seed=0)
    with pytest.raises(ValueError, match="choose from any, other"):
        symmetric_noise(LABELS, 10, 0.2, seed=0, kind="pair")
