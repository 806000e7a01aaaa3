"""What is measured: the mean loss over a set of batches, its gradient and its Hessian products.

L(θ) = 1/n · Σ_B |B|·L_B(θ)        n = Σ_B |B|, L_B the mean loss of batch B
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..closures import closure, evaluate
from ..tensors import Tensors, add_, scale_
from .guard import device_of, untouched

Batch = Any


class Objective:
    """The loss of a model over batches, at the weights that it has when it is asked.

    Batches are those of `letsam.closure`: (inputs, …, targets), or a dict. They are gone through many times, so a list
    or a data loader will do and a generator will not; they are moved to the model's device. loss_fn returns the mean
    loss of a batch, or the losses of its samples.

    training=False is eval mode: BatchNorm has its trained statistics, dropout is off. training=True is the loss that
    training sees: BatchNorm takes the statistics of each batch, and dropout masks, shuffles and whatever else is random
    are drawn from `seed` anew in every pass, so that all passes measure the same function.

    For mixed precision, measure inside `torch.autocast`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., Tensor] | None,
        batches: Iterable[Batch],
        *,
        training: bool = False,
        seed: int = 0,
    ) -> None:
        if isinstance(batches, Iterator):
            raise TypeError(f"batches is a {type(batches).__name__}, which can be read once; give a list of batches")
        self.model, self.loss_fn, self.batches = model, loss_fn, batches
        self.training, self.seed = training, seed
        self.params: Tensors = [p for p in model.parameters() if p.requires_grad]
        if not self.params:
            raise ValueError("no parameter of the model requires a gradient: there is nothing to measure")

    def only(self, batch: Batch) -> Objective:
        """The same for a single batch."""
        return Objective(self.model, self.loss_fn, [batch], training=self.training, seed=self.seed)

    def loss(self) -> float:
        """L(θ)."""
        return self._mean(lambda batch: float(evaluate(self.model, self.loss_fn, batch).mean()))

    def gradient(self) -> tuple[float, Tensors]:
        """L(θ) and ∇L(θ) over the trained parameters; `.grad` is left alone."""
        total = [torch.zeros_like(p) for p in self.params]

        def loss(batch: Batch) -> float:
            with torch.enable_grad():
                value = evaluate(self.model, self.loss_fn, batch).mean()
            gradients = torch.autograd.grad(value, self.params, materialize_grads=True)
            add_(total, list(gradients), size(batch))
            return float(value)

        mean = self._mean(loss, total)
        return mean, total

    def product(self, vectors: Tensors) -> Tensors:
        """∇²L(θ)·v by double backward: the gradient of ⟨∇L(θ), v⟩ (Pearlmutter, 1994)."""
        total = [torch.zeros_like(p) for p in self.params]

        def add(batch: Batch) -> float:
            products = closure(self.model, self.loss_fn, batch).hessian_product(self.params, vectors)
            add_(total, products, size(batch))
            return 0.0

        with sdpa_kernel(SDPBackend.MATH):  # the fast kernels of attention have no second derivative
            self._mean(add, total)
        return total

    @torch.no_grad()
    def _mean(self, of_batch: Callable[[Batch], float], total: Tensors | None = None) -> float:
        """The mean over all samples, of what is returned and of what is added up in total."""
        device, n, value = device_of(self.model), 0, 0.0
        with untouched(self.model, self.training, self.seed):
            for batch in self.batches:
                batch = _on(device, batch)
                value += size(batch) * of_batch(batch)
                n += size(batch)
        if n == 0:
            raise ValueError("there are no batches to measure the loss on")
        if total is not None:
            scale_(total, 1 / n)
        return value / n


def size(batch: Batch) -> int:
    """How many samples a batch has."""
    values = batch.values() if isinstance(batch, Mapping) else batch
    return len(next(x for x in values if isinstance(x, Tensor)))


def _on(device: torch.device, batch: Batch) -> Batch:
    def move(x: Any) -> Any:
        return x.to(device, non_blocking=True) if isinstance(x, Tensor) else x

    return {k: move(x) for k, x in batch.items()} if isinstance(batch, Mapping) else tuple(map(move, batch))
