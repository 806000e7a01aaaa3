"""Which gradient the base optimizer gets, from the clean gradient g and the perturbed one ĝ.

A combiner writes into the list that `.grad` holds: ĝ on perturbed steps, g on the others. Products and norms run
over all parameters at once, never tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from .checks import number, within
from .space import Space
from .tensors import Tensors, add_, add_scaled_, copied, ratio, scale_

Recall = Callable[[str], Tensors | None]


class Combiner(Protocol):
    """Makes the gradient of the step."""

    needs_clean: bool
    """Whether g has to survive the perturbed pass (one more parameter copy)."""
    memories: tuple[str, ...]
    """Names of what it remembers from step to step."""

    def wants_perturbation(self, recall: Recall) -> bool:
        """Whether this step must be perturbed whatever the policy says."""

    def perturbed(self, space: Space, g: Tensors | None, g_hat: Tensors) -> dict[str, Tensors]:
        """Combine into g_hat, g is not needed any more; returns what to find again at the next step."""

    def differentiate_(self, space: Space, g: Tensors | None, g_hat: Tensors, b: Tensors) -> None:
        """b ← (∂d/∂ĝ)·b: how the combined gradient d answers when ĝ moves along b."""

    def plain(self, space: Space, g: Tensors, norm: Tensor, recall: Recall) -> None:
        """Combine into g, of this norm, on a step without a perturbed pass."""


class _Plain:
    needs_clean = False
    memories: tuple[str, ...] = ()

    def wants_perturbation(self, recall: Recall) -> bool:
        return False

    def differentiate_(self, space: Space, g: Tensors | None, g_hat: Tensors, b: Tensors) -> None:
        return None

    def plain(self, space: Space, g: Tensors, norm: Tensor, recall: Recall) -> None:
        return None


@dataclass(frozen=True)
class Perturbed(_Plain):
    """SAM: ĝ itself."""

    def perturbed(self, space: Space, g: Tensors | None, g_hat: Tensors) -> dict[str, Tensors]:
        """Nothing to do."""
        return {}


@dataclass(frozen=True)
class SurrogateGap(_Plain):
    """GSAM: ĝ − α·g⊥, where g⊥ is the part of g orthogonal to ĝ."""

    alpha: float = 0.4

    needs_clean = True

    def __post_init__(self) -> None:
        number("alpha", self.alpha)

    def perturbed(self, space: Space, g: Tensors | None, g_hat: Tensors) -> dict[str, Tensors]:
        """ĝ ← ĝ − αg⊥, g⊥ = g − (⟨g,ĝ⟩/‖ĝ‖²)ĝ. In this order g⊥ is 0, bit for bit, where ĝ is g."""
        assert g is not None
        if not space.surrogate_(g, g_hat, self.alpha):
            add_scaled_(g, g_hat, -ratio(*space.dots((g, g_hat), (g_hat, g_hat))))
            add_(g_hat, g, -self.alpha)
        return {}

    def differentiate_(self, space: Space, g: Tensors | None, g_hat: Tensors, b: Tensors) -> None:
        """b ← (1 + αc)b + αc'ĝ, with c = ⟨g,ĝ⟩/‖ĝ‖² and c' = (⟨g,b⟩ − 2c⟨ĝ,b⟩)/‖ĝ‖² its change along b."""
        assert g is not None
        along, length = space.dots((g, g_hat), (g_hat, g_hat))
        c = ratio(along, length)
        change = ratio(space.dot(g, b) - 2 * c * space.dot(g_hat, b), length)
        scale_(b, 1 + self.alpha * c)
        add_scaled_(b, g_hat, self.alpha * change)


@dataclass(frozen=True)
class Mix(_Plain):
    """Gradient-norm penalty: (1−α)·g + α·ĝ; α = 1 is SAM."""

    alpha: float = 0.8

    needs_clean = True

    def __post_init__(self) -> None:
        within("alpha", self.alpha, 0, 1)

    def perturbed(self, space: Space, g: Tensors | None, g_hat: Tensors) -> dict[str, Tensors]:
        """ĝ ← αĝ + (1−α)g."""
        assert g is not None
        scale_(g_hat, self.alpha)
        add_(g_hat, g, 1 - self.alpha)
        return {}

    def differentiate_(self, space: Space, g: Tensors | None, g_hat: Tensors, b: Tensors) -> None:
        """b ← αb."""
        scale_(b, self.alpha)


@dataclass(frozen=True)
class Reuse(_Plain):
    """LookSAM: between perturbed steps, reuse g_v, the part of the last ĝ orthogonal to its g.

    Perturbed step: ĝ, and g_v = ĝ − (⟨g,ĝ⟩/‖g‖²)g is kept. Other steps: g + α·(‖g‖/‖g_v‖)·g_v. While there is
    no g_v, a perturbed step is forced.
    """

    alpha: float = 0.7

    needs_clean = True
    memories = ("g_v",)

    def __post_init__(self) -> None:
        number("alpha", self.alpha)

    def wants_perturbation(self, recall: Recall) -> bool:
        """While there is no g_v."""
        return recall("g_v") is None

    def perturbed(self, space: Space, g: Tensors | None, g_hat: Tensors) -> dict[str, Tensors]:
        """Keeps g_v."""
        assert g is not None
        g_v = copied(g_hat)
        add_scaled_(g_v, g, -ratio(*space.dots((g, g_hat), (g, g))))
        return {"g_v": g_v}

    def plain(self, space: Space, g: Tensors, norm: Tensor, recall: Recall) -> None:
        """g ← g + α(‖g‖/‖g_v‖)g_v."""
        g_v = recall("g_v")
        assert g_v is not None
        add_scaled_(g, g_v, self.alpha * ratio(norm, space.norm(g_v)))
