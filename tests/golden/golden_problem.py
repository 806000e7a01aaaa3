"""The small float64 problems of the recordings: every input is a dyadic rational, so exact on any machine."""

import torch
from torch import Tensor, nn

STEPS, BATCH, CLASSES = 6, 8, 3


def pattern(shape: tuple[int, ...], a: int, b: int) -> Tensor:
    """Entry i (row-major) is (2((a·i + b) mod 13) − 13)/16: odd sixteenths in ±13/16, never zero."""
    i = torch.arange(int(torch.Size(shape).numel()))
    return ((2 * ((a * i + b) % 13) - 13).double() / 16).reshape(shape)


def build(problem: str) -> nn.Module:
    """`single`, `mlp` or `conv`, the latter two also `-nobias`; tensor j is pattern(shape, 3 + 2j, j)/2."""
    kind, bias = problem.split("-")[0], not problem.endswith("-nobias")
    model = {
        "single": lambda: nn.Linear(9, CLASSES, bias=False),
        "mlp": lambda: nn.Sequential(nn.Linear(9, 2, bias=bias), nn.Tanh(), nn.Linear(2, CLASSES, bias=bias)),
        "conv": lambda: nn.Sequential(
            nn.Unflatten(1, (1, 3, 3)),
            nn.Conv2d(1, 2, 2, bias=bias),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(8, CLASSES, bias=bias),
        ),
    }[kind]().double()
    with torch.no_grad():
        for j, p in enumerate(model.parameters()):
            p.copy_(pattern(tuple(p.shape), 3 + 2 * j, j) / 2)
    return model


def batch(t: int) -> tuple[Tensor, Tensor]:
    """Rows 8t … 8t+7 of x = pattern((48, 9), 5, 1) and y_n = (n² + ⌊n/4⌋) mod 3: a new batch each step."""
    n = torch.arange(t * BATCH, (t + 1) * BATCH)
    return pattern((STEPS * BATCH, 9), 5, 1)[n], (n * n + n // 4) % CLASSES
