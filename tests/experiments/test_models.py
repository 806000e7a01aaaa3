"""The models: their sizes, a forward and a backward pass, layouts and types, names, what they promise."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from letsam.experiments import models
from letsam.experiments.models import count
from letsam.experiments.models.decoder import Decoder
from letsam.experiments.models.grey_mlp import GreyMLP
from letsam.experiments.models.mlp import DeepMLP
from letsam.experiments.models.pyramidnet import pyramidnet
from letsam.experiments.models.resnet import resnet18, resnet32
from letsam.experiments.models.resnet_imagenet import resnet50
from letsam.experiments.models.vit import VisionTransformer
from letsam.experiments.models.wide_resnet import wide_resnet


@pytest.mark.parametrize(
    ("make", "options", "parameters", "tensors"),
    [
        (resnet18, {}, 11_173_962, 62),
        (resnet18, {"classes": 100}, 11_220_132, 62),
        (resnet32, {}, 464_154, 95),  # He et al.: 0.46 M
        (resnet50, {}, 25_557_032, 161),  # torchvision: 25.56 M
        (pyramidnet, {}, 28_485_477, 439),  # the count of other public implementations too
        (pyramidnet, {"classes": 100}, 28_511_307, 439),
        (pyramidnet, {"alpha": 84}, 3_904_446, 439),
        (wide_resnet, {}, 36_479_194, 80),
        (wide_resnet, {"depth": 16, "width": 8, "classes": 100}, 11_007_540, 44),
        (VisionTransformer, {}, 21_342_346, 152),
        (VisionTransformer, {"classes": 1000, "patch": 16, "size": 224}, 22_050_664, 152),  # ViT-S/16: 22.05 M
        (Decoder, {}, 124_475_904, 148),
        (Decoder, {"width": 1024, "depth": 24, "heads": 16}, 354_871_296, 292),
        (DeepMLP, {}, 4_156_490, 2000),
        (GreyMLP, {"side": 8, "width": 16}, 1_482, 6),
    ],
)
def test_sizes(make, options, parameters, tensors):
    with torch.device("meta"):
        assert count(make(**options)) == {"parameters": parameters, "tensors": tensors}


LAST = torch.channels_last
SMALL = {
    "resnet18": {"width": 8},
    "resnet32": {"width": 8},
    "resnet50": {"width": 8},
    "wrn28-10": {"depth": 10, "width": 1, "drop": 0.1},
    "pyramidnet110": {"depth": 14, "alpha": 10},
    "vit-s": {"width": 32, "depth": 2, "heads": 4},
}


@pytest.mark.parametrize("name", SMALL)
def test_images_go_through(name):
    torch.manual_seed(0)
    network, images, labels = models.create(name, 7, **SMALL[name]), torch.randn(16, 3, 32, 32), torch.randint(7, (16,))
    first = falls(network, lambda: cross_entropy(network(images), labels))
    assert network(images).shape == (16, 7)
    assert first < 2 * math.log(7)  # a start that knows nothing, and is not sure of it


@pytest.mark.parametrize("name", SMALL)
def test_channels_last_gives_the_same_and_stays(name):
    torch.manual_seed(0)
    network, images = models.create(name, 7, **SMALL[name]).eval(), torch.randn(4, 3, 32, 32)
    expected = network(images)
    network.to(memory_format=LAST)
    layouts = []
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            # A layout that is lost on the way costs a copy before each convolution; shortcuts are where it gets lost.
            module.register_forward_pre_hook(lambda _, x: layouts.append(x[0].is_contiguous(memory_format=LAST)))
    found = network(images.to(memory_format=LAST))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert layouts
    assert all(layouts)
    found.sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("name", SMALL)
def test_bf16_autocast_is_close_and_has_gradients(name):
    torch.manual_seed(0)
    network, images, labels = models.create(name, 7, **SMALL[name]), torch.randn(8, 3, 32, 32), torch.randint(7, (8,))
    network.eval()  # statistics of so few samples would be noise
    exact = network(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = network(images)
        loss = cross_entropy(output, labels)
    loss.backward()
    assert output.dtype == torch.bfloat16
    assert (output - exact).norm() < 0.05 * exact.norm()
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("size", [32, 30, 9])  # halves that are not whole
@pytest.mark.parametrize("name", ["resnet32", "pyramidnet110"])
def test_shortcuts_without_weights_fit_at_every_size(name, size):
    assert models.create(name, 3, **SMALL[name])(torch.randn(2, 3, size, size)).shape == (2, 3)


def test_a_block_with_no_branch_is_its_shortcut():
    block = resnet32(width=4)[8]  # the first of the second stage
    nn.init.zeros_(block.bn2.weight)
    x = torch.rand(2, 4, 6, 6)
    y = block.eval()(x)
    assert torch.equal(y[:, :4], x[:, :, ::2, ::2])
    assert not y[:, 4:].any()
    pyramid = pyramidnet(depth=14, alpha=12)[4]  # 16 + 2, 16 + 4, then with a stride
    nn.init.zeros_(pyramid.bn3.weight)
    x = torch.randn(2, 20, 6, 6)
    y = pyramid.eval()(x)
    torch.testing.assert_close(y[:, :20], nn.functional.avg_pool2d(x, 2))
    assert y.shape == (2, 22, 3, 3)
    assert not y[:, 20:].any()


@pytest.mark.parametrize("make", [resnet18, resnet32, resnet50, wide_resnet])
def test_convolutions_start_as_he_says(make):
    torch.manual_seed(0)
    for module in make().modules() if make is not wide_resnet else make(depth=10, width=4).modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * math.prod(module.kernel_size)
            n = module.weight.numel()
            assert module.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=5 / (2 * n) ** 0.5)


def test_models_by_name():
    with torch.device("meta"):
        sizes = {name: count(models.create(name, 10))["parameters"] for name in models.MODELS}
    assert sizes == {
        "resnet18": 11_173_962,
        "resnet32": 464_154,
        "resnet50": 23_528_522,
        "wrn28-10": 36_479_194,
        "pyramidnet110": 28_485_477,
        "vit-s": 21_342_346,
        "small-cnn": 6_138,
        "mlp": 269_322,
    }
    assert models.create("small-cnn", 4)(torch.randn(2, 1, 8, 8)).shape == (2, 4)
    grey = torch.randn(2, 1, 28, 28)
    mlp = models.create("mlp", 4)
    assert mlp(grey).shape == (2, 4)
    torch.testing.assert_close(mlp(grey.expand(-1, 3, -1, -1)), mlp(grey))  # Fashion-MNIST comes in three like colours
    assert models.create("vit-s", 4, width=16, depth=1, heads=2, patch=8).position.shape == (1, 17, 16)
    with pytest.raises(ValueError, match=r"no model is called 'Resnet-18'; did you mean resnet18\?"):
        models.create("Resnet-18", 10)
    with pytest.raises(ValueError, match="choose from resnet18, resnet32, "):
        models.create("?", 10)


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
    with pytest.raises(ValueError, match="6·n"):
        pyramidnet(depth=111)
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
