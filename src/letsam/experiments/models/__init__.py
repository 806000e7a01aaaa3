"""Models of the experiments: `create` makes one by name, `count` says how large it is."""

from torch import nn

from .registry import MODELS, create

__all__ = ["MODELS", "count", "create"]


def count(model: nn.Module) -> dict[str, int]:
    """How many parameters that are trained, in how many tensors."""
    sizes = [p.numel() for p in model.parameters() if p.requires_grad]
    return {"parameters": sum(sizes), "tensors": len(sizes)}
