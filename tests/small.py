"""A small network with BatchNorm and dropout-free layers, its data, and every method on it."""

import torch
from torch import nn

import letsam

METHODS = letsam.list_methods()
BASES = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "nesterov": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True),
    "adamw": lambda params: torch.optim.AdamW(params, lr=3e-3, weight_decay=0.05),
}
LOSS = nn.CrossEntropyLoss(reduction="none")


def make_model(seed=0, dtype=torch.float32, norm=True, dropout=0.0):
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4) if norm else nn.Identity(), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(dropout), nn.Linear(64, 5)).to(dtype)


def batch(index, n=16, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 + index)
    x = torch.randn(n, 1, 6, 6, generator=generator)
    return x.to(dtype), torch.randint(0, 5, (n,), generator=generator)


def create(name, model, base="momentum", **options):
    if name == "le-sam" or "ae-" in name:
        options.setdefault("total_steps", 12)
    optimizer = BASES[base](model.parameters()) if isinstance(base, str) else base
    return letsam.create(name, optimizer, model=model, **options)


def learns(name, every=1):
    """Options that let the radius of `auto-<m>` move far within a few steps, from one at which ĝ − g is no rounding."""
    if not name.startswith("auto-"):
        return {}
    first = 4 * letsam.describe(name).defaults["initial"][0]
    return {"every": every, "gated": False, "initial": first, "bounds": (1e-5, 10.0)}


def closures(model, t, loss_fn=LOSS, **options):
    dtype = next(model.parameters()).dtype
    return (letsam.closure(model, loss_fn, batch(2 * t + i, dtype=dtype), **options) for i in range(2))


def train(model, opt, steps, first=0, **options):
    for t in range(first, first + steps):
        closure, val_closure = closures(model, t, **options)
        opt.step(closure, val_closure if opt.needs_validation else None)
    return model


def weights(model):
    """Everything that training moves: parameters and buffers."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def assert_equal(a, b):
    for name, value in weights(a).items() if isinstance(a, nn.Module) else a.items():
        other = weights(b)[name] if isinstance(b, nn.Module) else b[name]
        assert torch.equal(value, other), f"{name} differs by {(value - other).abs().max()}"


def radius(opt):
    return opt.param_groups[0]["sam_rho"]
