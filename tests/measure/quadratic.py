"""A least-squares problem in float64, whose loss is a quadratic: gradient, Hessian and every measure are known."""

import torch
from torch import nn

N, WIDTH = 12, 5


def half_square(output, target):
    return 0.5 * (output.squeeze(-1) - target) ** 2


class Quadratic:
    """L(w) = 1/2n ‖Xw − y‖²: g = Xᵀ(Xw − y)/n, H = XᵀX/n."""

    def __init__(self, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.X = torch.randn(N, WIDTH, dtype=torch.float64, generator=generator)
        self.y = torch.randn(N, dtype=torch.float64, generator=generator)
        self.model = nn.Linear(WIDTH, 1, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.model.weight.copy_(torch.randn(1, WIDTH, dtype=torch.float64, generator=generator))

    def batches(self, size):
        return [(self.X[i : i + size], self.y[i : i + size]) for i in range(0, N, size)]

    def loss(self, w, rows=slice(None)):
        return half_square(self.X[rows] @ w, self.y[rows]).mean()

    @property
    def w(self):
        return self.model.weight.detach()[0].clone()

    @property
    def H(self):
        return self.X.T @ self.X / N
