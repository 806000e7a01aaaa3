"""SharpnessAware: one optimizer, four axes. The file to read.

    g = ∇L(θ_t)                            the clean pass
    if policy(g):
        v = perturbation(g);  ε = ρ·v      ρ from the radius
        ĝ = ∇L(θ_t + ε)                    the perturbed pass; then θ_t comes back, bit for bit
        d = combiner(g, ĝ)
    else:
        d = combiner(g)
    θ_{t+1} = base(θ_t, d)
    ρ ← radius(L_tr, L_vl at θ_{t+1})      if it is learned

A named method is a choice of the four axes (methods.py); the mathematics in float64 is in reference.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from . import policies
from .checks import function, within, yes_or_no
from .closures import Closure, ScalerFeedback
from .combiners import Combiner, Perturbed
from .last import StepReport
from .passes import BatchStatistics, RandomState, Ranks, forget_gathered, run_pass, untouched_rng
from .perturbations import L2, Perturbation, Where, filter_dimension
from .radius import LearnedRadius, Learning, Radius
from .radius.constant import own_radii, radius_of
from .radius.learned import Response
from .radius.step import LowerStep
from .space import Space
from .state import PREFIX, Memory, fresh_scalars, step_if, takes_skip_flag
from .tensors import Scaled, Tensors, moved
from .tensors import finite as is_finite
from .wrapper import Wrapper

Pass = Callable[[], Any]
UpperLevel = tuple[Learning, Space, Response]


class SharpnessAware(Wrapper):
    """Sharpness-aware steps around any torch optimizer.

    `base` keeps the state, the groups and the learning rate; schedulers may be put on either. `model` lets the
    optimizer guard BatchNorm statistics and find convolution filters; closures of `letsam.closure` bring it along.
    keep < 1 runs the perturbed pass on the share of samples whose loss rose most (ESAM). replay_rng draws the same
    dropout masks in both passes. A group may carry its own `rho`. process_group: the ranks that train together; those
    of DistributedDataParallel or FSDP2 are known, without either it is all ranks.
    """

    def __init__(
        self,
        base: Optimizer,
        *,
        model: nn.Module | None = None,
        perturbation: Perturbation | None = None,
        policy: policies.Policy | None = None,
        combiner: Combiner | None = None,
        radius: Radius | float | None = None,
        keep: float = 1.0,
        replay_rng: bool = False,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        if not isinstance(base, Optimizer):
            raise TypeError(f"base is a {type(base).__name__}; give a torch optimizer such as SGD(params, lr=0.1)")
        if isinstance(base, SharpnessAware):
            raise TypeError("base is sharpness-aware already; give the optimizer inside it, base.base")
        if isinstance(base, torch.optim.LBFGS):
            raise TypeError("base is LBFGS, which makes its own passes; give an optimizer that makes none, such as SGD")
        within("keep", keep, 0, 1)
        yes_or_no("replay_rng", replay_rng)
        self.base, self.model = base, model
        self.perturbation = perturbation or L2()
        self.policy = policy or policies.Always()
        self.combiner = combiner or Perturbed()
        self.radius = radius_of(radius)
        self.keep, self.replay_rng, self.process_group = keep, replay_rng, process_group
        if keep < 1 and isinstance(self.radius, Learning) and self.radius.compares:
            raise ValueError(f"keep < 1 gives the perturbed pass other samples: {self.radius.compares}")
        fresh_scalars(base, self.radius, self.policy)
        self._start()

    def _start(self) -> None:
        """Everything that lives no longer than a step, and is never saved."""
        self.last = StepReport()
        self._memory = Memory(self.base)
        self._feedback = ScalerFeedback()
        self._params: list[nn.Parameter] = []
        self._space: Space | None = None
        self._ready: Space | None = None
        self._finite: Tensor | None = None
        self._upper: UpperLevel | None = None
        self._loaded()
        self._look_at(self.model)
        super()._start()

    @torch.no_grad()
    def step(self, closure: Pass | None = None, val_closure: Pass | None = None) -> Any:
        """One whole step; returns the loss of the clean pass. Without a closure, steps the base on `.grad`."""
        if closure is None:
            return self.base.step()
        if val_closure is None and self._due:
            raise ValueError("a learned radius needs validation batches: call step(closure, val_closure=…)")
        if val_closure is not None:  # it is called when the weights have moved
            function("val_closure", val_closure)
        loss = self.backward(closure)
        self._step_base()
        if val_closure is not None:
            self.learn(closure, val_closure)
        if isinstance(closure, Closure) and closure.scaler is not None and self._finite is not None:
            self._feedback.report(closure.scaler, self._finite)
        return loss

    @torch.no_grad()
    def backward(self, closure: Pass) -> Tensor:
        """Leave the sharpness-aware gradient in `.grad`, the weights as they were; returns the clean loss."""
        self._check(closure)
        self._memory.forget_pending()
        self._upper = None
        self._params = self._trained()
        self.last = StepReport()
        scalars, t = self._scalars, self._scalars["sam_step"]
        with self._guarded() as statistics:
            rng = RandomState(self._device) if self.replay_rng else None
            loss = self._pass(closure)
            space = self._used()
            g = space.gradients()
            norm = space.norm(g)
            finite = self._ranks.all(is_finite(loss + norm))
            statistics.accept(finite)

            self.radius.set(t, norm, self.base.param_groups)
            self.last.tell(loss=loss, grad_norm=norm, radius=scalars["sam_rho"])
            filters = [self._filter_of(p) for p in space.params]
            at = Where(t, space, space.theta, g, norm, filters, self._memory.recall(space))
            del g
            if self.policy.decide(t, norm, finite, scalars) or self.combiner.wants_perturbation(at.recall):
                finite = self._perturbed(closure, at, finite, rng)
                scalars["sam_perturbed"] += 1
            else:
                self.combiner.plain(space, space.gradients(), norm, at.recall)
            statistics.restore()
        scalars["sam_step"] += 1
        self._finite, skipped = finite, ~finite
        scalars["sam_skipped"] = scalars["sam_skipped"] + skipped
        self.last.tell(skipped=skipped)
        return loss

    @torch.no_grad()
    def learn(self, closure: Pass, val_closure: Pass) -> None:
        """Update a learned radius from the losses at the new weights; `.grad` is empty afterwards.

        Does nothing if the last step was not perturbed, or not one of every k-th.
        """
        if self._upper is None or self._finite is None:
            return
        (radius, space, response), self._upper = self._upper, None
        space.drop_spare()
        finite = self._finite
        mean = lambda loss: self._ranks.mean(loss.to(self._scalars["sam_rho"].dtype))  # noqa: E731

        def gradient(of: Pass) -> tuple[Tensor, Tensors]:
            nonlocal finite
            loss = self._pass(of)
            finite = self._ranks.all(finite & is_finite(loss))
            return mean(loss), space.gradients()

        with self._guarded() as statistics, untouched_rng(self._device):
            signal = radius.signal(space, response, lambda: gradient(closure), lambda: gradient(val_closure))
            statistics.restore()
        self.zero_grad()
        self._finite = finite & is_finite(torch.stack(list(signal.values())).sum())
        told = {name: mean(torch.as_tensor(self.last.tensors[name])) for name in radius.reads}
        radius.update(signal | told, self._finite, self._scalars)
        self.last.tell(radius=self._scalars["sam_rho"], **signal)

    def _perturbed(self, closure: Pass, at: Where, finite: Tensor, rng: RandomState | None) -> Tensor:
        """ĝ at θ_t + ε, and what the combiner makes of it; returns whether both passes were finite."""
        space, theta = at.space, at.space.theta
        learned = self._learned
        learning = learned if isinstance(learned, LearnedRadius) and (self._due or learned.memory) else None
        keeps = learning.keeps if learning else ()
        epsilon = self._epsilon(self.perturbation.direction(at.g, at), space)
        length = epsilon.s * (space.norm(epsilon.u) if epsilon.norm is None else epsilon.norm)
        memories = self.perturbation.remember(at.g, at)
        recalled = {name: at.recall(name) for name in self.perturbation.memories}  # before this step changes it
        kept = epsilon.tensors() if "epsilon" in keeps else []
        at.theta, at.g = space.room(), []
        then = replace(at, recall=recalled.get)
        change = None
        with moved(theta, at.theta, epsilon):
            g = space.take_gradients() if self.combiner.needs_clean or "g" in keeps else None
            del epsilon  # if nobody needs the gradient in it, its memory goes before the next pass
            if rng is not None:
                rng.replay()
            before = RandomState(self._device) if "rng" in keeps else None
            loss = self._pass(closure if self.keep == 1.0 else lambda: closure.hardest(self.keep))  # type: ignore[attr-defined]
            g_hat = space.gradients()
            used = self._used()  # a pass may use other parameters
            finite = self._ranks.all(finite & is_finite(loss) & used.finite(used.gradients()))
            if learning:
                again = lambda h: self._epsilon(self.perturbation.direction(h, then), space)  # noqa: E731
                lower = LowerStep(space, at.theta, g, kept, g_hat, again, self.combiner, closure, before, self._pass)
                change = learning.change(lower)
        memories |= self.combiner.perturbed(space, g, g_hat)
        for name, values in memories.items():
            self._memory.remember(space, name, values, finite)
        if learning and change and learning.memory:
            carried = self._memory.remember(space, "response", change(None), finite, learning.memory)
            change = lambda _: carried  # noqa: E731
        if learned and self._due:
            response = learning.response(change, space, self.base) if learning and change else lambda _: []
            self._upper = (learned, space, response)
        self.last.tell(perturbed_loss=loss, perturbation_norm=length, perturbed=True)
        return finite

    def _pass(self, closure: Pass) -> Tensor:
        self.last.passes += 1
        if isinstance(closure, Closure):
            closure.params = self._params
        return run_pass(closure, self._params, self._device)

    def _step_base(self) -> None:
        """θ_{t+1} = base(θ_t, d), unless a pass was not finite.

        A fused base takes the flag on the device; for the others it has to be read, one wait for the device a step.
        """
        assert self._finite is not None
        if self._ready is not self._space or self._space is None:
            self._ready = self._space if takes_skip_flag(self.base) else None
        if self._ready is not None:
            step_if(self.base, self._finite)
        elif self._finite:
            self.base.step()

    @property
    def needs_validation(self) -> bool:
        """Whether `step` needs a val_closure."""
        return self._learned is not None

    def freeze_radius(self) -> None:
        """Keep the radius learned so far: no more validation batches (to load such a state with DCP, freeze first)."""
        self._scalars["sam_frozen"], self._space = 1, None
        self._loaded()

    @property
    def _learned(self) -> Learning | None:
        """The radius, while it is learned."""
        return self.radius if isinstance(self.radius, Learning) and not self._scalars["sam_frozen"] else None

    @property
    def _due(self) -> bool:
        """Whether the next perturbed step updates it."""
        return self._learned is not None and self._scalars["sam_perturbed"] % self._learned.every == 0

    def _check(self, closure: Any) -> None:
        function("closure", closure)
        if self.keep < 1 and not isinstance(closure, Closure):
            raise TypeError("keep < 1 selects samples (ESAM): make the closure with letsam.closure")
        if self.model is None and isinstance(closure, Closure) and closure.model is not self._statistics.model:
            self._look_at(closure.model)

    def _look_at(self, model: nn.Module | None) -> None:
        self._statistics = BatchStatistics(model)
        self._ranks = Ranks(model, self._trained(), self.process_group)
        self._filter_of = filter_dimension(model)

    @contextmanager
    def _guarded(self) -> Iterator[BatchStatistics]:
        """BatchNorm statistics and the numbers of the axes go back to where they were if anything fails inside."""
        self._statistics.save()
        numbers = {key: value for key, value in self._scalars.items() if key.startswith(PREFIX)}
        try:
            yield self._statistics
        except BaseException:
            self._statistics.undo()
            self._scalars.update(numbers)
            forget_gathered(self._statistics.model)
            raise

    def _used(self) -> Space:
        """The space of the parameters that the last pass used; mostly that of the step before."""
        params = [p for p in self._params if p.grad is not None]
        if self._space is None or not self._space.is_of(params):
            self._space = Space(params)
        return self._space

    def _epsilon(self, v: Scaled | Tensors, space: Space) -> Scaled:
        """ρ·v, with a group's own radius relative to the common one."""
        rho = self._scalars["sam_rho"]
        u, s, norm = (v.u, v.s * rho, v.norm) if isinstance(v, Scaled) else (v, rho, None)
        if (own := own_radii(self.base.param_groups, self.radius.initial, space.params)) is not None:
            u, norm = list(torch._foreach_mul(u, own)), None
        return Scaled(u, s, norm)

    def _loaded(self) -> None:
        self._memory.forget_pending()
        self._memory.keep(self.perturbation, self.combiner, self._learned)
        self._upper = self._ready = None
