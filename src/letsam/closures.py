"""Closures: what one pass is. Micro-batches, autocast, loss scaling and sample selection live here; capture.py
replays them from CUDA graphs.

A closure follows torch's contract: clear the gradients, forward, backward, return the loss. Any function that does so
will do; `closure` builds one from a model, a loss and a batch.
"""

from __future__ import annotations

import copy
import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from .batches import length, of_samples
from .capture import CaptureError, graphs_of, modules_of, why_not
from .checks import whole

Batch = Any
log = logging.getLogger("letsam")


class Closure:
    """One batch through one model, as a function to call; `letsam.closure` is its name for users.

    batch is (inputs, …, targets), and the loss loss_fn(model(inputs, …), targets); or a dict, and the loss
    loss_fn(model(**batch), batch), or model(**batch).loss without a loss_fn. loss_fn may return one loss (a mean) or
    the losses of the samples. micro_batches splits the batch and adds the gradients up, to that of the whole batch's
    mean. autocast is a dtype. With a scaler the loss is scaled for the backward pass and the gradients are unscaled at
    once; call scaler.update() after opt.step().

    capture=True replays the passes from a CUDA graph, which is captured when a batch of this shape comes the second
    time and is found again by the closures of later batches; compile=True compiles what is captured, and a dict are
    torch.compile's options. A rare shape runs eagerly. A pass that cannot be captured is an error, with capture="try" a
    line in the log. Without a GPU the closure is the eager one.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., Tensor] | None,
        batch: Batch,
        *,
        micro_batches: int = 1,
        autocast: torch.dtype | None = None,
        scaler: GradScaler | None = None,
        capture: bool | str = False,
        compile: bool | Mapping[str, Any] = False,
    ) -> None:
        if not isinstance(batch, tuple | list | Mapping):
            raise TypeError(f"batch is a {type(batch).__name__}; give (inputs, targets) or a dict of tensors")
        if loss_fn is None and not isinstance(batch, Mapping):
            raise TypeError("loss_fn is None; that needs a dict batch and a model whose output has a loss")
        whole("micro_batches", micro_batches, 1)
        self.model, self.loss_fn, self.batch = model, loss_fn, batch
        if capture not in (False, True, "try"):
            raise ValueError(f"capture is {capture!r}; choose from False, True, 'try'")
        if compile is not False and not capture:
            raise ValueError("compile=True compiles what is captured: pass capture=True with it, or compile the model")
        self.micro_batches, self.autocast, self.scaler = micro_batches, autocast, scaler
        self.capture = capture
        self.compile = tuple(sorted(compile.items())) if isinstance(compile, Mapping) else bool(compile)
        self._evaluate = evaluate
        self._chosen: Tensor | None = None
        self.params: Sequence[nn.Parameter] = ()
        """What is trained, as the optimizer knows it: a loss function may use weights that no module holds."""
        self.losses: Tensor | None = None
        """Losses of the samples in the last pass, if the loss function returns them (reduction="none")."""

    def __call__(self) -> Tensor:
        """Clear the gradients, forward and backward over all micro-batches, return the mean loss."""
        self._chosen = None
        loss, self.losses = self._run("_accumulate", self.batch)
        return loss

    def hardest(self, share: float) -> Tensor:
        """ESAM's data part: a pass over the samples whose loss rose most since the last whole pass.

        One forward pass for the losses, then a forward and backward pass of the chosen ones alone; at least one.
        """
        if self.losses is None:
            raise TypeError(
                "keep < 1 needs one loss for each sample: give letsam.closure a loss with reduction='none', and if "
                "that has more dimensions, its means: .flatten(1).mean(1)"
            )
        loss, self._chosen = self._run("_accumulate_hardest", self.batch, self.losses, share)
        return loss

    def hessian_product(self, params: list[Tensor], vectors: list[Tensor]) -> list[Tensor]:
        """∇²L·vector at the present weights, on the samples of the last pass, by double backward; leaves `.grad`."""
        total = [torch.zeros_like(v) for v in vectors]
        seen = self.batch if self._chosen is None else _rows(self.batch, self._chosen)
        for part, weight in self._weighted(seen):
            with torch.enable_grad():
                gradients = torch.autograd.grad(
                    self._loss(part).mean(), params, create_graph=True, materialize_grads=True
                )
                inner = sum(((g * v).sum() for g, v in zip(gradients, vectors, strict=True)), torch.zeros(()))
            products = torch.autograd.grad(inner, params, materialize_grads=True)
            torch._foreach_add_(total, list(products), alpha=weight)
        return total

    def _run(self, name: str, *arguments: Any) -> Any:
        """One of the two passes below, from a graph if that is asked for and possible."""
        run = getattr(self, name)
        if not self.capture or not _on_gpu(self.model):
            return run(*arguments)
        if (reason := why_not(self.model, self.batch)) is not None:
            if self.capture != "try":
                raise CaptureError(f"the pass cannot be captured: {reason}")
            _say_once(f"a pass runs eagerly: {reason}")
            return run(*arguments)
        device = next(self.model.parameters()).device.type
        around = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        kind = name, self.autocast, around, self.micro_batches, self.scaler, self.compile
        lenient = self.capture == "try"
        graphs = graphs_of(self.model)

        def to_capture() -> Any:
            return run if self.compile is False else getattr(self._compiled_twin(graphs.compiled), name)

        return graphs.run(run, to_capture, arguments, kind, self.model, self.loss_fn, self.params, lenient)

    def _compiled_twin(self, kept: list[Any]) -> Closure:
        """The same closure over a compiled model: a batch that is not captured runs uncompiled."""
        twin = copy.copy(self)
        twin._evaluate = _compiled(self.compile)
        kept.append(twin._evaluate)  # not the twin: it knows the model, which would then be in a cycle
        return twin

    def _accumulate(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        clear_gradients(self.model)
        if isinstance(self.loss_fn, nn.Module):
            clear_gradients(self.loss_fn)
        total, losses = [], []
        for part, weight in self._weighted(batch):
            with torch.enable_grad():
                loss = self._loss(part)
                mean = loss if loss.ndim == 0 else loss.mean()
                mean = mean if weight == 1 else mean * weight
                (mean if self.scaler is None else self.scaler.scale(mean)).backward()
            total.append(mean.detach())
            losses.append(loss.detach())
        if self.scaler is not None:
            self._unscale(total[0].device)
        per_sample = torch.cat(losses) if losses[0].ndim == 1 else None
        return sum(total[1:], total[0]), per_sample

    def _accumulate_hardest(self, batch: Batch, before: Tensor, share: float) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            after = torch.cat([self._loss(part) for part in self._parts(batch)])
        chosen = (after - before).topk(max(1, round(share * len(after)))).indices
        return self._accumulate(_rows(batch, chosen))[0], chosen

    def _unscale(self, device: torch.device) -> None:
        # scale(1) is the scale itself, on the device: no private attribute, no wait.
        assert self.scaler is not None
        inverse = self.scaler.scale(torch.ones((), device=device)).reciprocal()
        params = {id(p): p for p in (*modules_of(self.model, self.loss_fn).parameters(), *self.params)}.values()
        torch._foreach_mul_([p.grad for p in params if p.grad is not None], inverse)

    def _loss(self, batch: Batch) -> Tensor:
        with self._context():
            loss = self._evaluate(self.model, self.loss_fn, batch)
        if not isinstance(loss, Tensor):
            raise TypeError(f"the loss function returned {type(loss).__name__}; it has to return a tensor")
        return loss

    def _context(self) -> AbstractContextManager[Any]:
        if self.autocast is None:
            return nullcontext()
        device = next(self.model.parameters()).device.type
        return torch.autocast(device, dtype=self.autocast)

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        n = length(batch)
        size = -(-n // min(self.micro_batches, n))
        for first in range(0, n, size):
            yield batch if size == n else of_samples(batch, operator.itemgetter(slice(first, min(first + size, n))))

    def _weighted(self, batch: Batch) -> Iterator[tuple[Batch, float]]:
        n = length(batch)
        for part in self._parts(batch):
            yield part, length(part) / n


closure = Closure


def evaluate(model: nn.Module, loss_fn: Callable[..., Tensor] | None, batch: Batch) -> Tensor:
    """The loss of a batch."""
    if isinstance(batch, Mapping):
        output = model(**batch)
        return output.loss if loss_fn is None else loss_fn(output, batch)
    *inputs, target = batch
    assert loss_fn is not None
    return loss_fn(model(*inputs), target)


def _compiled(options: bool | tuple[tuple[str, Any], ...]) -> Callable[..., Tensor]:
    """`evaluate` compiled, with code of its own: of one code torch keeps eight versions, and runs others uncompiled."""
    fresh = FunctionType(evaluate.__code__.replace(), evaluate.__globals__, evaluate.__name__)
    return torch.compile(fresh, dynamic=False, options=dict(options) if isinstance(options, tuple) else None)


def _on_gpu(model: nn.Module) -> bool:
    if next(model.parameters()).is_cuda:
        return True
    _say_once("capture=True has no effect: the model is not on a CUDA device, passes run eagerly")
    return False


@cache
def _say_once(text: str) -> None:
    log.warning(text)


class ScalerFeedback:
    """Tells a GradScaler whether a step was finite, through its public face: a probe parameter's gradient."""

    def __init__(self) -> None:
        self._probe: torch.optim.SGD | None = None

    def report(self, scaler: GradScaler, finite: Tensor) -> None:
        """What scaler.unscale_ would have found; scaler.update() then grows the scale or backs off."""
        if self._probe is None:
            self._probe = torch.optim.SGD([nn.Parameter(torch.zeros((), device=finite.device))], lr=0.0)
        probe = self._probe.param_groups[0]["params"][0]
        probe.grad = torch.where(finite, 0.0, torch.inf)
        scaler.unscale_(self._probe)


def clear_gradients(model: nn.Module) -> None:
    """model.zero_grad() ten times faster: with many small layers, going through them is what a step waits for."""
    modules: list[nn.Module | None] = [model]
    for module in modules:
        if module is not None:
            for p in module._parameters.values():
                if p is not None and p.grad is not None:
                    p.grad = None
            modules += module._modules.values()


def _rows(batch: Batch, chosen: Tensor) -> Batch:
    return of_samples(batch, lambda x: x[chosen.to(x.device)])
