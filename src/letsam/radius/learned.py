"""LETS: the radius learned by bilevel optimization.

Lower level: θ_{t+1}(ρ) = base(θ_t, ĝ), ĝ = ∇L_tr(θ_t + ρv). Upper level: an objective U of θ_{t+1}, from L_tr and L_vl
there. With ρ = exp(ν), ε = ρv is linear in ρ, so dĝ/dν = ρ·∇²L·v =: ρb and

    dU/dν = −⟨∇U, J·ρb⟩,   J the Jacobian of the base's step.

The objectives: squared-gap ½(L_vl − L_tr)² (the paper), gap L_vl − L_tr, validation L_vl. Only the inner products of
ḡ_tr and ḡ_vl with J·ρb are needed, so the two gradients at θ_{t+1} are streamed through one list.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..checks import bounded, one_of, pair, whole, within, yes_or_no
from ..space import Space
from ..tensors import Tensors, add_scaled_, copied, ratio
from . import algorithm1, appendix, exact, finite_difference
from .jacobian import with_jacobian, with_plain_rate
from .step import LowerStep, Signal, count, running_mean

ESTIMATORS = {
    "algorithm1": algorithm1,
    "appendix": appendix,
    "finite-difference": finite_difference,
    "exact": exact,
}
MEANS = {"loss": "train_loss", "perturbed_loss": "perturbed_loss", "val_loss": "val_loss"}
"""Where the mean of a loss is kept."""
OBJECTIVES = ("squared-gap", "gap", "validation")
Gradient = Callable[[], tuple[Tensor, Tensors]]
Change = Callable[[Tensors | None], Tensors]
Response = Callable[[Tensors | None], Tensors]


@dataclass(frozen=True)
class LearnedRadius:
    """ρ = exp(ν), with ν moved after every `every`-th perturbed step.

    rule="adam": Adam on ν with the hyper-gradient dU/dν, as in the paper; its learning rate is multiplied by
    `decay` after each update. rule="cosine": ν ← ν + κ·every·cos(∇U, J·b), scale-free, no second moment.
    length_free takes the part of b along ĝ away: what the radius does to the length of the step, not to its direction.
    memory carries the answer of earlier steps forward: J·Σ λ^k·(ρb)_{t−k} in place of J·ρb, with λ = memory. A single
    batch says little about what a radius does; the mean of the last 1/(1 − λ) steps says it more clearly.
    gated multiplies the cosine by γ = 1 − L_tr/L_vl, at least 0, both losses averaged over as many steps: one step
    ahead a larger radius often pays even where in the end it only keeps a network from learning, so there has to be a
    gap between the losses for it to close. Meant for losses that are never negative.
    capped lets ρ grow only while the perturbed training loss is at most the held-out one, by the same means. SAM is
    derived from a bound of the loss on unseen data by the highest training loss within ρ: where the perturbed loss is
    as high as that on unseen data, ρ is large enough. Signs of a smaller radius are followed as before.
    shift makes the walk one of log(ρ + shift): above it ρ is multiplied, far below it nearly added to, so that a first
    radius too small to do harm is no long way from one that does some good.
    """

    initial: float = 0.05
    estimator: str = "algorithm1"
    objective: str = "squared-gap"
    length_free: bool = False
    rule: str = "adam"
    every: int = 1
    memory: float = 0.0
    gated: bool = False
    capped: bool = False
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    decay: float = 1.0
    kappa: float = 0.3
    shift: float = 0.0
    bounds: tuple[float, float] = (1e-5, 10.0)

    def __post_init__(self) -> None:
        one_of("estimator", self.estimator, tuple(ESTIMATORS))
        one_of("objective", self.objective, OBJECTIVES)
        one_of("rule", self.rule, ("adam", "cosine"))
        bounded(self.initial, self.bounds)
        whole("every", self.every, 1)
        for name in ("lr", "eps", "kappa", "shift"):
            within(name, getattr(self, name), 0, math.inf)
        pair("betas", self.betas)
        for beta in self.betas:
            within("betas", beta, 0, math.nextafter(1, 0))
        for name in ("length_free", "gated", "capped"):
            yes_or_no(name, getattr(self, name))
        within("decay", self.decay, 0, 1)
        within("memory", self.memory, 0, math.nextafter(1, 0))
        if self.memory and self._as_printed:
            raise ValueError(f"{self.estimator} is one step of the paper: use memory=0, or 'finite-difference'")
        for name in ("gated", "capped", "shift"):
            if getattr(self, name) and self.rule != "cosine":
                raise ValueError(f"{name} is for the cosine: use rule='cosine' with it")

    @property
    def keeps(self) -> tuple[str, ...]:
        """Which lists of a step the estimator needs."""
        return ESTIMATORS[self.estimator].KEEPS

    @property
    def compares(self) -> str:
        """Why both passes have to see the same samples, and a way out; empty if they need not."""
        return "ĝ − g has no meaning then, use estimator='exact'" if self.estimator == "finite-difference" else ""

    @property
    def reads(self) -> tuple[str, ...]:
        """What of the step's report an update needs."""
        return ("loss",) * self.gated + ("perturbed_loss",) * self.capped

    @property
    def memories(self) -> tuple[str, ...]:
        """Names of what it remembers."""
        return ("response",) if self.memory else ()

    @property
    def passes(self) -> int:
        """Passes of one update: at θ_{t+1}, and two for a Hessian-vector product."""
        return 1 + self._needs_training + 2 * (self.estimator == "exact")

    @property
    def unused(self) -> tuple[str, ...]:
        """Fields that the rule does not read."""
        return ("kappa", "shift") if self.rule == "adam" else ("lr", "betas", "eps", "decay")

    @property
    def _averaged(self) -> tuple[str, ...]:
        """Losses of which it keeps a mean."""
        return (*self.reads, "val_loss") if self.reads else ()

    @property
    def _needs_training(self) -> bool:
        return self.objective != "validation" or self.estimator == "algorithm1"

    @property
    def _as_printed(self) -> bool:
        """The paper's estimators know neither the combiner nor the base: d is ĝ, and J the learning rate."""
        return self.estimator in ("algorithm1", "appendix")

    def scalars(self) -> dict[str, float]:
        """Adam's moments of ν, updates made and skipped, mean losses; ν itself is log `sam_rho`."""
        means = dict.fromkeys((MEANS[name] for name in self._averaged), 0.0)
        return {"nu_m": 0.0, "nu_v": 0.0, "nu_updates": 0.0, "radius_skipped": 0.0} | means

    def set(self, t: int, norm: Tensor, groups: list[dict[str, Any]]) -> None:
        """`sam_rho` holds what was learned."""

    def change(self, step: LowerStep) -> Change:
        """ρb = dĝ/dν, as a function of ḡ_tr: Algorithm 1 has to wait for it, the others are formed now."""
        if self.estimator == "algorithm1":
            # A copy of ĝ, since the combiner may write into it before ḡ_tr is there.
            g_hat = copied(step.g_hat)
            held = replace(step, g=None, epsilon=[], g_hat=g_hat)

            def later(g_bar_tr: Tensors | None) -> Tensors:
                b = self._estimate(replace(held, g_bar_tr=g_bar_tr))
                held.g_hat = []  # given back before the validation pass
                return b

            return later
        b = self._estimate(step)
        return lambda g_bar_tr: b

    def response(self, change: Change, space: Space, base: Optimizer) -> Response:
        """J·ρb, the answer of −θ_{t+1} to ν; called before the base steps, when its state still is that of step t."""
        if self._as_printed:
            return lambda g_bar_tr: with_plain_rate(change(g_bar_tr), space, base)
        b = with_jacobian(change(None), space, base)
        return lambda g_bar_tr: b

    def _estimate(self, step: LowerStep) -> Tensors:
        b = self._without_length(step) if self.length_free else ESTIMATORS[self.estimator].estimate(step)
        if not self._as_printed:
            step.combiner.differentiate_(step.space, step.g, step.g_hat, b)
        return b

    def _without_length(self, step: LowerStep) -> Tensors:
        """b − ⟨b,ĝ⟩/⟨ĝ,ĝ⟩·ĝ; where b is ĝ − g, a kernel writes it over g, or over a copy if the combiner needs g."""
        if self.estimator == "finite-difference" and step.space.has_kernels:
            assert step.g is not None
            g = copied(step.g) if step.combiner.needs_clean else step.g
            if step.space.across_(step.g_hat, g):
                return g
        b = ESTIMATORS[self.estimator].estimate(step)
        along = ratio(*step.space.dots((b, step.g_hat), (step.g_hat, step.g_hat)))
        add_scaled_(b, step.g_hat, -along)
        return b

    def signal(self, space: Space, response: Response, training: Gradient, validation: Gradient) -> Signal:
        """dU/dν and cos(∇U, J·b), from the gradients at θ_{t+1}, which are computed one after the other."""
        loss_tr = on_tr = torch.zeros((), device=space.device)
        g_bar_tr: Tensors | None = None
        if self._needs_training:
            loss_tr, g_bar_tr = training()
        b = response(g_bar_tr)
        if self.objective == "validation":
            g_bar_tr = None
        elif g_bar_tr is not None and self.rule == "adam":
            # Only its inner product is needed: let it go before the next pass.
            on_tr, g_bar_tr = space.dot(g_bar_tr, b), None
        elif g_bar_tr is not None:
            g_bar_tr = space.take_gradients()
        loss_vl, nabla_U = validation()
        if g_bar_tr is not None:
            torch._foreach_sub_(nabla_U, g_bar_tr)
        lengths = ((nabla_U, nabla_U), (b, b)) if self.rule == "cosine" else ()
        on_U, *squares = space.dots((nabla_U, b), *lengths)
        on_U = on_U - on_tr
        weight = loss_vl - loss_tr if self.objective == "squared-gap" else torch.ones_like(on_U)
        out = {"hyper_gradient": -weight * on_U, "val_loss": loss_vl}
        if self.rule == "cosine":
            out["cosine"] = weight.sign() * ratio(on_U, squares[0].sqrt() * squares[1].sqrt())
        return out

    def update(self, signal: Signal, finite: Tensor, scalars: dict[str, Any]) -> None:
        """Move ρ = exp(ν); if anything was not finite, nothing moves."""
        if self.rule == "cosine":
            move = self._cosine(signal, finite, scalars)
        else:
            move = self._adam(signal["hyper_gradient"], finite, scalars)
        finite = finite & move.isfinite()
        rho = scalars["sam_rho"]
        # ρ + 0 is ρ itself, bit for bit, when Δν is 0; exp(log(ρ + s)) − s would not be.
        moved = (rho + (rho + self.shift) * move.expm1()).clamp(*self.bounds)
        scalars["sam_rho"] = torch.where(finite, moved, rho)
        count(scalars, finite)

    def _cosine(self, signal: Signal, finite: Tensor, scalars: dict[str, Any]) -> Tensor:
        """κ·every·γ·cos; nothing upwards where the cap is reached."""
        move = self.kappa * self.every * signal["cosine"]
        mean = self._means(signal, finite, scalars)
        if self.gated:  # γ: the part of the held-out loss that a fit to the training data has opened
            move = move * (1 - ratio(mean["loss"], mean["val_loss"])).clamp(0, 1)
        if self.capped:
            move = torch.where(mean["perturbed_loss"] > mean["val_loss"], move.clamp(max=0), move)
        return move

    def _means(self, signal: Signal, finite: Tensor, scalars: dict[str, Any]) -> dict[str, Tensor]:
        """The losses, averaged over as many steps as the memory."""
        first, means = scalars["sam_nu_updates"] == 0, {}
        for name in self._averaged:
            place = f"sam_{MEANS[name]}"
            old = scalars[place]
            means[name] = running_mean(old, signal[name].to(old), self.memory**self.every, first)
            scalars[place] = torch.where(finite, means[name], old)
        return means

    def _adam(self, g: Tensor, finite: Tensor, scalars: dict[str, Any]) -> Tensor:
        finite = finite & g.isfinite()
        beta1, beta2 = self.betas
        done, m, v = (scalars[f"sam_nu_{name}"] for name in ("updates", "m", "v"))
        m, v = torch.lerp(g.to(m), m, beta1), torch.lerp(g.to(v) ** 2, v, beta2)
        for name, value in (("m", m), ("v", v)):
            scalars[f"sam_nu_{name}"] = torch.where(finite, value, scalars[f"sam_nu_{name}"])
        m_hat, v_hat = m / (1 - beta1 ** (done + 1)), v / (1 - beta2 ** (done + 1))
        return -self.lr * self.decay**done * m_hat / (v_hat.sqrt() + self.eps)
