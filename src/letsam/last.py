"""The report of a step: numbers that stay on the device until somebody reads them."""

from __future__ import annotations

from torch import Tensor

_FLAGS = ("perturbed", "skipped")
_LOSSES = ("loss", "perturbed_loss", "val_loss")
_NUMBERS = (*_LOSSES, "radius", "grad_norm", "perturbation_norm", "hyper_gradient", "cosine")


class StepReport:
    """`opt.last`: reading a number waits for the device; a number that the step did not make is None.

    loss, perturbed_loss and val_loss (at θ_t, θ_t + ε, θ_{t+1}); radius (after the step); grad_norm of the clean
    gradient; perturbation_norm, which is ‖ε‖; hyper_gradient (dU/dν) and cosine of a learned radius; perturbed: whether
    the perturbed pass ran; skipped: whether a pass was not finite, so that no weight moved; passes: how often a closure
    was called.
    """

    loss: float | None
    perturbed_loss: float | None
    val_loss: float | None
    radius: float | None
    grad_norm: float | None
    perturbation_norm: float | None
    hyper_gradient: float | None
    cosine: float | None
    perturbed: bool
    skipped: bool

    def __init__(self) -> None:
        self.passes = 0
        self.tensors: dict[str, Tensor | bool] = {}

    def tell(self, **values: Tensor | bool) -> None:
        """Add to the report."""
        self.tensors.update(values)

    def __getattr__(self, name: str) -> float | bool | None:
        if name in _FLAGS:
            return bool(self.__dict__["tensors"].get(name, False))
        if name in _NUMBERS:
            value = self.__dict__["tensors"].get(name)
            return None if value is None else float(value)
        raise AttributeError(name)

    def as_dict(self) -> dict[str, float | bool | None]:
        """Everything, as Python numbers."""
        return {name: getattr(self, name) for name in (*_NUMBERS, *_FLAGS)} | {"passes": self.passes}

    def __repr__(self) -> str:
        known = {k: v for k, v in self.as_dict().items() if v is not None}
        return f"StepReport({', '.join(f'{k}={v:.6g}' for k, v in known.items())})"
