"""A CUDA graph without a GPU: replayed, it runs the pass again and writes where the captured one left its results.

Like the real one it sets no `.grad`: whoever replays it has to know which gradients it wrote.
"""

from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from letsam import capture, closures


class PretendedGraph:
    """Stands for torch.cuda.CUDAGraph."""

    def pool(self):
        return None

    def replay(self):
        params = list(self.modules.parameters())
        held = [p.grad for p in params]
        outputs = self.function(*self.arguments)
        for p, old, into in zip(params, held, self.gradients, strict=True):
            if into is not None:
                into.copy_(p.grad)
            p.grad = old
        for into, x in zip(self.outputs, outputs, strict=True):
            if into is not None:
                into.copy_(x)


def pretend(monkeypatch, *modules):
    """capture=True captures on a CPU the passes through these modules."""
    make, told = capture.Graph.__init__, {}

    def captured(graph, *arguments):
        make(graph, *arguments)
        vars(graph._graph).update(told, outputs=graph._outputs)

    @contextmanager
    def recording(*_, **__):
        yield
        told["gradients"] = [p.grad for p in told["modules"].parameters()]

    def warm_up(function, arguments):
        told.update(function=function, arguments=arguments, modules=nn.ModuleList(modules))

    monkeypatch.setattr(capture.Graph, "__init__", captured)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", PretendedGraph)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(capture, "_side_stream", lambda _: None)
    monkeypatch.setattr(capture, "_warm_up", warm_up)
    monkeypatch.setattr(closures, "_on_gpu", lambda _: True)
