"""The structure of a batch: tensors in tuples, lists and dicts, nested as the model takes them, and other values.

Every tensor has the samples in its first dimension; one without dimensions belongs to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from torch import Tensor


def leaves(x: Any) -> list[Any]:
    """Everything in it that is no tuple, list or dict, in order."""
    if not isinstance(x, tuple | list | Mapping):
        return [x]
    return [leaf for part in (x.values() if isinstance(x, Mapping) else x) for leaf in leaves(part)]


def tensors(x: Any) -> list[Tensor]:
    """Its tensors, in order."""
    return [leaf for leaf in leaves(x) if isinstance(leaf, Tensor)]


def replaced(x: Any, others: Iterator[Tensor]) -> Any:
    """The same structure with other tensors."""
    if isinstance(x, Tensor):
        return next(others)
    if isinstance(x, Mapping):
        return {k: replaced(v, others) for k, v in x.items()}
    if not isinstance(x, tuple | list):
        return x
    parts = [replaced(v, others) for v in x]
    return x._make(parts) if hasattr(x, "_make") else type(x)(parts)


def signature(x: Any) -> Hashable:
    """What has to be equal for two arguments to go through one graph."""
    if isinstance(x, Tensor):
        return tuple(x.shape), x.dtype, x.stride()
    if isinstance(x, Mapping):
        return tuple((k, signature(v)) for k, v in x.items())
    return tuple(map(signature, x)) if isinstance(x, tuple | list) else x


def length(batch: Any) -> int:
    """How many samples there are."""
    n = next((len(x) for x in tensors(batch) if x.ndim), 0)
    if n == 0:
        raise ValueError("the batch has no samples; give tensors whose first dimension counts at least one")
    return n


def of_samples(batch: Any, f: Callable[[Tensor], Tensor]) -> Any:
    """The batch with f of every tensor that has samples."""
    return replaced(batch, (f(x) if x.ndim else x for x in tensors(batch)))
