"""One step with a learned radius, written out in plain torch: no letsam, no reference.py."""

import copy
from types import SimpleNamespace

import torch

import oracle

XI, EPS = 0.01, 1e-12


def dot(a, b):
    return sum((x * y).sum() for x, y in zip(a, b, strict=True))


def gradient(model, batch):
    """L and ∇L at the model's weights."""
    loss = oracle.per_sample(model(batch[0]), batch[1]).mean()
    return loss.item(), torch.autograd.grad(loss, list(model.parameters()))


def scales(model):
    """T_θ: filter by filter for the convolution, entry by entry elsewhere."""
    result = [p.detach().abs() + XI for p in model.parameters()]
    for i, c in enumerate(model.conv.weight.detach()):
        result[0][i] = c.flatten().norm() + XI
    return result


def direction(g, T=None):
    """g/‖g‖, or T²g/‖Tg‖."""
    T = T or [torch.ones_like(x) for x in g]
    Tg = [t * x for t, x in zip(T, g, strict=True)]
    return [t * x / (dot(Tg, Tg).sqrt() + EPS) for t, x in zip(T, Tg, strict=True)]


def take(model, base, data, rho, adaptive=False):
    """One real step of a copy of the model and of its base; all the symbols of the paper."""
    batch, val_batch = data
    T = scales(model) if adaptive else None
    _, g = gradient(model, batch)
    v = direction(g, T)
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for p, x in zip(moved.parameters(), v, strict=True):
            p.add_(x, alpha=rho)
    _, g_hat = gradient(moved, batch)
    model, base = copy.deepcopy((model, base))
    for p, x in zip(model.parameters(), g_hat, strict=True):
        p.grad = x.clone()
    base.step()
    L_tr, g_tr = gradient(model, batch)
    L_vl, g_vl = gradient(model, val_batch)
    lr = [group["lr"] for group in base.param_groups for _ in group["params"]]
    return SimpleNamespace(g=g, v=v, T=T, g_hat=g_hat, L_tr=L_tr, L_vl=L_vl, g_tr=g_tr, g_vl=g_vl, lr=lr)


def upper_objective(objective, s):
    gap = s.L_vl - s.L_tr
    return {"squared-gap": gap**2 / 2, "gap": gap, "validation": s.L_vl}[objective]


def upper_gradient(objective, s):
    gap = [x - y for x, y in zip(s.g_vl, s.g_tr, strict=True)]
    return {
        "squared-gap": [(s.L_vl - s.L_tr) * x for x in gap],
        "gap": gap,
        "validation": s.g_vl,
    }[objective]
