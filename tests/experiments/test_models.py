"""The models: their sizes, a forward and a backward pass, what they promise."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from letsam.experiments.models import count
from letsam.experiments.models.decoder import Decoder
from letsam.experiments.models.mlp import DeepMLP
from letsam.experiments.models.resnet import resnet18
from letsam.experiments.models.vit import VisionTransformer
from letsam.experiments.models.wide_resnet import wide_resnet


@pytest.mark.parametrize(
    ("make", "options", "parameters", "tensors"),
    [
        (resnet18, {}, 11_173_962, 62),
        (resnet18, {"classes": 100}, 11_220_132, 62),
        (wide_resnet, {}, 36_479_194, 80),
        (wide_resnet, {"depth": 16, "width": 8, "classes": 100}, 11_007_540, 44),
        (VisionTransformer, {}, 21_342_346, 152),
        (Decoder, {}, 124_475_904, 148),
        (Decoder, {"width": 1024, "depth": 24, "heads": 16}, 354_871_296, 292),
        (DeepMLP, {}, 4_156_490, 2000),
    ],
)
def test_sizes(make, options, parameters, tensors):
    with torch.device("meta"):
        assert count(make(**options)) == {"parameters": parameters, "tensors": tensors}


@pytest.mark.parametrize(
    "model",
    [
        lambda: resnet18(classes=7, width=8),
        lambda: wide_resnet(depth=10, width=1, classes=7, drop=0.1),
        lambda: VisionTransformer(classes=7, width=32, depth=2, heads=4),
    ],
)
def test_images_go_through(model):
    torch.manual_seed(0)
    network, images, labels = model(), torch.randn(16, 3, 32, 32), torch.randint(7, (16,))
    first = falls(network, lambda: cross_entropy(network(images), labels))
    assert network(images).shape == (16, 7)
    assert first < 2 * math.log(7)  # a start that knows nothing, and is not sure of it


def test_tokens_go_through_and_do_not_look_ahead():
    torch.manual_seed(0)
    network = Decoder(width=32, depth=2, heads=4, vocabulary=50, context=12)
    text = torch.randint(50, (3, 13))
    first = falls(network, lambda: cross_entropy(network(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()))
    assert first == pytest.approx(math.log(50), rel=0.05)
    changed = text.clone()
    changed[:, 6:] = 0
    torch.testing.assert_close(network(text[:, :-1])[:, :6], network(changed[:, :-1])[:, :6])


def test_a_thousand_layers_train():
    torch.manual_seed(0)
    network = DeepMLP()
    x, labels = torch.randn(32, 64), torch.randint(10, (32,))
    assert network(x).std() < 3
    falls(network, lambda: cross_entropy(network(x), labels), steps=2)


def test_sizes_that_cannot_be():
    with pytest.raises(ValueError, match="6·n"):
        wide_resnet(depth=27)
    with pytest.raises(ValueError, match="heads"):
        VisionTransformer(width=30, heads=4)
    with pytest.raises(ValueError, match="patches"):
        VisionTransformer(patch=5)


def falls(network, loss, steps=5):
    """A few steps make the loss smaller, and every parameter has a part in it; returns the loss at the start."""
    opt = torch.optim.SGD(network.parameters(), lr=0.05)
    first = None
    for _ in range(steps):
        opt.zero_grad()
        value = loss()
        value.backward()
        opt.step()
        first = value.item() if first is None else first
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    assert loss().item() < first
    return first
