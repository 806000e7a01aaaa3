"""What a captured pass bakes in beside its batch: the parts of the model, their flags, the loss function."""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any

from torch import nn
from torch.nn.modules import loss as losses


class Parts:
    """What a model is made of, listed once: to see in every pass whether it still is so has to be cheap.

    The model itself is not held: a cycle would keep its memory until the garbage collector comes by.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._inner = modules[1:]
        self._tables = [d for m in modules for d in (m._modules, m._parameters, m._buffers)]
        self._contents = self._look()
        self._params, self._buffers = list(model.parameters()), list(model.buffers())
        self._places = self._where()
        self.params = frozenset(map(id, self._params))

    def _look(self) -> list[Any]:
        return [x for d in self._tables for x in d.values()]

    def _where(self) -> list[int]:
        return [x.data_ptr() for x in self._params] + [x.data_ptr() for x in self._buffers]

    def changed(self) -> bool:
        """Whether a module, parameter or buffer was replaced, or lies elsewhere in memory."""
        now = self._look()
        same = len(now) == len(self._contents) and all(map(operator.is_, now, self._contents))
        return not same or self._where() != self._places

    def flags(self, model: nn.Module) -> tuple[bool, ...]:
        """What Python looks at during a pass."""
        return model.training, *[m.training for m in self._inner], *[p.requires_grad for p in self._params]

    def moved(self, model: nn.Module) -> str:
        """The name of the first tensor or module that is another one now."""
        names = [
            f"{name}.{key}".lstrip(".")
            for name, m in model.named_modules()
            for d in (m._modules, m._parameters, m._buffers)
            for key in d
        ]
        now = self._look()
        return next((n for n, a, b in zip(names, now, self._contents, strict=False) if a is not b), "something")


class Itself:
    """Stands for an object that has no hash: equal to nothing else."""

    def __init__(self, it: Any) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and self.it is other.it

    def __hash__(self) -> int:
        return id(self.it)


def of_loss(loss: Any) -> Hashable:
    """What has to be equal for two loss functions to go through one graph.

    One of torch's own modules is what its settings are, since many loops make it anew for each epoch; any other is
    itself, together with its flags and the places of its tensors.
    """
    if not isinstance(loss, nn.Module):
        return loss if isinstance(loss, Hashable) else Itself(loss)
    held = [*loss.parameters(), *loss.buffers()]
    if type(loss).__module__ == losses.__name__ and not held and not any(loss._modules.values()) and not _hooked(loss):
        settings = {key: value for key, value in vars(loss).items() if not key.startswith("_")}
        if all(isinstance(value, Hashable) for value in settings.values()):
            return type(loss), tuple(settings.items())
    flags = [m.training for m in loss.modules()]
    return loss, *flags, *[(id(x), x.data_ptr(), x.requires_grad) for x in held]


def _hooked(module: nn.Module) -> bool:
    return any(value for key, value in vars(module).items() if key.endswith("_hooks"))
