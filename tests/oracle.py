"""A small float64 problem, and the optimizer and reference.py side by side on it."""

import torch
from torch import nn

import letsam
from letsam import reference
from letsam.policies import uniforms

BATCH = 12

# name: class, options, options of the second parameter group, the reference's rule
BASES = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}, {"lr": 0.05}, reference.sgd),
    "momentum": (
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-3},
        {"lr": 0.02, "weight_decay": 0.0},
        reference.sgd,
    ),
    "dampening": (
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.8, "dampening": 0.3},
        {"lr": 0.05},
        reference.sgd,
    ),
    "nesterov": (
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-3},
        {"lr": 0.02},
        reference.sgd,
    ),
    # eps of the size of a gradient: with 1e-8 the first step is the sign of the gradient, and a sign has no slope
    "adam": (
        torch.optim.Adam,
        {"lr": 5e-3, "weight_decay": 0.01, "eps": 1e-2},
        {"lr": 2e-3, "betas": (0.8, 0.95)},
        reference.adam,
    ),
    "adamw": (
        torch.optim.AdamW,
        {"lr": 5e-3, "weight_decay": 0.05, "eps": 1e-2},
        {"lr": 2e-3, "betas": (0.8, 0.95)},
        reference.adamw,
    ),
}


class Net(nn.Module):
    """174 weights, every activation smooth."""

    def __init__(self, conv=None, width=18):
        super().__init__()
        self.conv = conv or nn.Conv2d(1, 2, 3)
        self.hidden = nn.Linear(width, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = torch.tanh(self.conv(x)).flatten(1)
        return self.head(nn.functional.gelu(self.hidden(x)))


def make_model(seed=0, **options):
    torch.manual_seed(seed)
    model = Net(**options).double()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2.0)  # away from the flat region around zero: curvature, and so hyper-gradients, of some size
    return model


def make_data(steps, seed=1):
    """Pairs of a training and a validation batch; the labels are a noisy function of the inputs."""
    generator = torch.Generator().manual_seed(seed)
    teacher = torch.randn(25, 4, generator=generator, dtype=torch.float64)

    def batch():
        x = torch.randn(BATCH, 1, 5, 5, generator=generator, dtype=torch.float64)
        noise = torch.randn(BATCH, 4, generator=generator, dtype=torch.float64)
        return x, (x.flatten(1) @ teacher + 3 * noise).argmax(1)

    return [(batch(), batch()) for _ in range(steps)]


def make_base(name, model):
    kind, options, second, _ = BASES[name]
    head = list(model.head.parameters())
    body = [p for part in (model.conv, model.hidden) for p in part.parameters()]
    return kind([{"params": body}, {"params": head, **second}], **options)


def weights(opt):
    """A copy of all weights, in the order of the parameter groups."""
    return [p.detach().clone() for group in opt.param_groups for p in group["params"]]


def per_sample(output, y):
    return nn.functional.cross_entropy(output, y, reduction="none")


def closures(model, data, plain=False):
    """The closures of one step: letsam.closure objects, or plain functions."""

    def function(x, y):
        def run():
            model.zero_grad()
            loss = per_sample(model(x), y).mean()
            loss.backward()
            return loss

        return run

    return [function(*batch) if plain else letsam.closure(model, per_sample, batch) for batch in data]


def make_losses(model):
    """The model as a function of its weights, for the reference."""
    names = [name for name, _ in model.named_parameters()]

    def losses(theta, batch):
        x, y = batch
        return per_sample(torch.func.functional_call(model, dict(zip(names, theta, strict=True)), (x,)), y)

    return losses


def make_world(model, base, rule, seed=0, filter_dims=(0, None, None, None, None, None)):
    """The reference's view of the same problem, with the draws that the optimizer makes."""
    options = [dict(group) for group in base.param_groups for _ in group["params"]]
    shapes = [p.shape for p in model.parameters()]

    def noise(t):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + t)
        return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]

    return reference.World(
        make_losses(model),
        reference.Base(rule, options),
        filter_dims,
        lambda t, n: uniforms(seed, t, n),
        noise,
    )


def slope_at_zero(f, h=1e-3):
    """f'(0) by central differences, the error of order h² taken out so that h can stay far above rounding."""
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)
