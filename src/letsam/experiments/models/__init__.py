"""Models of the experiments."""

from torch import nn


def count(model: nn.Module) -> dict[str, int]:
    """How many parameters that are trained, in how many tensors."""
    sizes = [p.numel() for p in model.parameters() if p.requires_grad]
    return {"parameters": sum(sizes), "tensors": len(sizes)}
