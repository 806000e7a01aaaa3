"""Passes replayed from CUDA graphs: the host launches a pass with one call, where it launched every kernel.

A graph is the closure's own pass, run once under capture: same code, same numbers. It reads the batch from tensors of
its own, draws new dropout masks at every replay, and leaves the gradients where they were when it was captured, so
that `.grad` is always the same memory. It bakes in everything else that Python decided during the capture.

One graph serves clean and perturbed passes: the optimizer guards the BatchNorm statistics around it. Graphs live on
the model, die with it, and share one memory pool; each has gradients of its own, so that there are no more than 25.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .batches import leaves, replaced, signature, tensors
from .kinds import Parts, of_loss
from .passes import alone, untouched_rng

log = logging.getLogger("letsam")
Outputs = tuple[Tensor | None, ...]
Pass = Callable[..., Outputs]
RARE = 1 / 25
MANY = 100
RECENT = 1_000
MOST = 25
"""No more kinds than these can be one pass in 25 each."""
FEW, OFTEN = 4, 5
"""A step has at most four passes, so what comes five times comes in several steps."""


class CaptureError(RuntimeError):
    """A pass that cannot be captured; says why and what to do."""


class Graphs:
    """The graphs of a model, by the kind of pass.

    A kind is captured when it comes the second time, if at least one recent pass in 25 is of that kind: the last
    batch of an epoch, which is shorter, runs eagerly. Where there are four graphs already, it has to come five times: a
    loss function that is made anew in every step is never worth a graph. What was counted is halved every 1,000 passes,
    so that a kind that comes late is captured soon. Of more than 25 graphs the one that was not used for longest is
    dropped, and all are if a parameter or buffer moves to other memory.
    """

    def __init__(self) -> None:
        self.captures = 0
        self.refused: set[Hashable] = set()
        self.pool: Any = None
        self.compiled: list[Any] = []
        """What was compiled for graphs: it has to live as long as they."""
        self._parts: Parts | None = None
        self._graphs: dict[Hashable, Graph] = {}
        self._seen: Counter[Hashable] = Counter()
        self._passes = self._eager = self._asked = self._moves = 0

    def __reduce__(self) -> Any:
        return dict, ()  # copies and pickles of the model have no graphs, and do not need letsam

    def run(
        self,
        eager: Pass,
        to_capture: Callable[[], Pass],
        arguments: tuple[Any, ...],
        kind: Hashable,
        model: nn.Module,
        loss: Any,
        params: Sequence[nn.Parameter] = (),
        lenient: bool = False,
    ) -> Outputs:
        """What eager(*arguments) returns and leaves in `.grad`, through a graph of `to_capture()` where there is one.

        kind is all that the graph bakes in, beside the model, the loss function and the shapes of the arguments. params
        are trained, by the model or from elsewhere. lenient: a pass that cannot be captured runs eagerly.
        """
        parts = self._present(model)
        beside = [p for p in params if id(p) not in parts.params]
        known = tuple([(id(p), p.data_ptr()) for p in beside])
        kind = (kind, known, parts.flags(model), of_loss(loss), signature(arguments))
        self._count()
        if (graph := self._graphs.pop(kind, None)) is not None:
            self._graphs[kind] = graph  # the last one used is the last one
            return graph.replay(arguments)
        if lenient and kind in self.refused:
            return eager(*arguments)
        if self._is_rare(kind):
            self._tell()
            return eager(*arguments)
        try:
            self._graphs[kind] = graph = self._made(to_capture(), arguments, modules_of(model, loss), beside)
        except CaptureError as error:
            if not lenient:
                raise
            self.refused.add(kind)
            log.warning("%s; such passes run eagerly", error)
            return eager(*arguments)
        if len(self._graphs) > MOST:
            del self._graphs[next(iter(self._graphs))]
        return graph.replay(arguments)

    def _present(self, model: nn.Module) -> Parts:
        """What the model is made of; if that is not what it was, no graph is good any more."""
        self._asked += 1
        old = self._parts
        if old is None or old.changed():
            self._parts = Parts(model)
            self._graphs.clear()
            self._seen.clear()
            self._passes = self._eager = 0
            self._moves += 1
            if old is not None and self._moves == MANY and self._asked < 2 * MANY:
                log.warning(
                    "no pass is captured: %s of the model is another tensor in every pass; write into it in place "
                    "(copy_, mul_, …)",
                    old.moved(model),
                )
        assert self._parts is not None
        return self._parts

    def _made(self, function: Pass, arguments: Any, modules: nn.ModuleList, beside: Sequence[nn.Parameter]) -> Graph:
        begin = time.perf_counter()
        graph = Graph(function, arguments, modules, self.pool, beside)
        self.captures, self.pool = self.captures + 1, graph.pool
        log.info("captured a pass over %s in %.1f s", signature(arguments), time.perf_counter() - begin)
        return graph

    def _count(self) -> None:
        """One pass more; what is long ago counts less and less."""
        self._passes += 1
        if self._passes % RECENT == 0:
            self._passes //= 2
            self._seen = Counter({k: n // 2 for k, n in self._seen.items() if n > 1})

    def _is_rare(self, kind: Hashable) -> bool:
        """Counts a kind that has no graph; of too many the rarest are forgotten."""
        self._seen[kind] += 1
        if len(self._seen) > MANY:
            self._seen = Counter(dict(self._seen.most_common(MANY // 2)) | {kind: self._seen[kind]})
        tried = len(self._graphs) + len(self.refused)
        return self._seen[kind] < max(2 if tried < FEW else OFTEN, RARE * self._passes)

    def _tell(self) -> None:
        """Says once that most passes are not replayed."""
        self._eager += 1
        if self._eager == MANY and self._passes < 2 * MANY:
            log.warning(
                "%d of %d passes were not captured: too few were of one kind; make the loss function once, before the "
                "loop, and batches of one shape",
                self._eager,
                self._passes,
            )


def graphs_of(model: nn.Module) -> Graphs:
    """The graphs of a model, made when first asked for."""
    graphs = model.__dict__.get("_letsam_graphs")
    if not isinstance(graphs, Graphs):
        graphs = model.__dict__["_letsam_graphs"] = Graphs()
    return graphs


class Graph:
    """One captured pass."""

    def __init__(
        self,
        function: Pass,
        arguments: Any,
        modules: nn.ModuleList,
        pool: Any,
        beside: Sequence[nn.Parameter] = (),
    ) -> None:
        function = _clearing(beside, function) if beside else function
        self._inputs = [x.clone() for x in tensors(arguments)]
        static = replaced(arguments, iter(self._inputs))
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(next(modules.parameters()).device), _unmoved(modules), _explained():
            _warm_up(function, static)
            torch.clear_autocast_cache()
            stream = _side_stream(torch.cuda.current_device())
            with torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                self._outputs = function(*static)
        # Views, which by the optimizer's contract are memory that the pass owns (Space.take_gradients).
        trained = {id(p): p for p in (*modules.parameters(), *beside)}.values()
        self._gradients = [(p, p.grad.view_as(p.grad)) for p in trained if p.grad is not None]
        self.pool = self._graph.pool()

    def replay(self, arguments: Any) -> Outputs:
        """The pass over other data."""
        torch._foreach_copy_(self._inputs, tensors(arguments))
        self._graph.replay()
        for p, gradient in self._gradients:
            p.grad = gradient
        # The next replay writes over the outputs.
        return tuple(x if x is None else x.clone() for x in self._outputs)


def _clearing(params: Sequence[nn.Parameter], function: Pass) -> Pass:
    """The pass after the gradients of these are cleared: it clears those of its modules alone."""

    def cleared(*arguments: Any) -> Outputs:
        for p in params:
            p.grad = None
        return function(*arguments)

    return cleared


def modules_of(model: nn.Module, loss: Any) -> nn.ModuleList:
    """What a pass goes through: the model, and the loss function where that is a module, which may be trained too."""
    return nn.ModuleList([model, loss] if isinstance(loss, nn.Module) else [model])


def why_not(model: nn.Module, batch: Any) -> str | None:
    """Why a pass over this batch cannot be captured, if that can be seen beforehand."""
    device = next(model.parameters()).device
    for i, x in enumerate(tensors((batch,))):
        if x.device != device:
            return f"tensor {i} of the batch is on {x.device} and the model on {device}: move the batch there first"
    for x in leaves(batch):
        if not isinstance(x, Hashable):
            return f"the batch holds a {type(x).__name__}, which a graph cannot read anew: make it a tensor"
    if not alone():
        return "there are several processes, and their communication is not captured: use capture=False"
    return None


@contextmanager
def _unmoved(model: nn.Module) -> Iterator[None]:
    """Warm-up passes move neither statistics nor random state."""
    buffers = list(model.buffers())
    before = [b.clone() for b in buffers]
    try:
        with untouched_rng(next(model.parameters()).device):
            yield
    finally:
        for b, old in zip(buffers, before, strict=True):
            b.copy_(old)


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """One stream for all captures on a device: libraries keep a workspace for every stream they ever saw."""
    return torch.cuda.Stream(device)


def _warm_up(function: Pass, arguments: Any) -> None:
    """Libraries choose their algorithms and make their workspaces; then a pass that must not wait for the device.

    Seen here, a wait has a place in the code; seen during the capture, it leaves the device in an unknown state.
    """
    stream = _side_stream(torch.cuda.current_device())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function(*arguments)
        torch.cuda.synchronize()
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            function(*arguments)
        finally:
            torch.cuda.set_sync_debug_mode(mode)
    torch.cuda.current_stream().wait_stream(stream)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if "synchronizing CUDA operation" not in text and "captur" not in text:
            raise
        raise CaptureError(
            f"the pass cannot be captured: {_place(error)} waits for the device or has a shape that depends on the "
            "data (.item(), .cpu(), nonzero, a boolean mask, a tensor made on the CPU); take it out of the model and "
            "the loss, or pass capture='try' to run such passes eagerly"
        ) from error


def _place(error: BaseException) -> str:
    """The innermost line of the user's code in a traceback."""
    inside = (Path(torch.__file__).parent, Path(__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not any(folder in Path(f.filename).parents for folder in inside)]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno} `{own[-1].line}`" if own else "its backward pass"
