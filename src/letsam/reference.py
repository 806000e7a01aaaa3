"""Every method and every hyper-gradient again: slow, functional, float64, in the notation of the papers.

Read the mathematics here; the tests compare the optimizer with it, and nothing in the package imports it.
A point θ or a gradient is a list of tensors; ⟨·,·⟩ and ‖·‖ run over all entries of all tensors. Nothing is
modified in place or drawn at random: uniforms and noise are inputs. `losses(θ, B)` gives the loss of every
sample of the batch B, and L(B; θ) is their mean. One step of any method, t = 0, 1, …:

    g = ∇L(B; θ_t)                  the clean gradient
    v = direction(g)                where to: the perturbation is ε = ρ_t v
    ĝ = ∇L(B; θ_t + ρ_t v)          on the steps that the policy chooses
    d = combine(g, ĝ)               what the base optimizer gets
    θ_{t+1} = base(θ_t, d)
    ρ_{t+1} = exp(ν_{t+1})          a learned radius: ν follows g_ν = dU/dν, U the upper objective at θ_{t+1}
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

Tensors = list[Tensor]
Batch = tuple[Tensor, ...]
Losses = Callable[[Tensors, Batch], Tensor]
Operator = Callable[[Tensors], Tensors]
State = dict[str, Any]

AXES: State = {"perturbation": "l2", "policy": "always", "combiner": "perturbed", "radius": "constant"}
PERTURBATION = {"eps": 1e-12, "xi": 0.01, "beta": 0.6, "sigma": 1.0, "momentum": 0.9, "keep": 1.0}
POLICY = {"p": 0.5, "k": 5, "lambda1": -1.0, "lambda2": 1.0, "delta": 0.9, "total_steps": 1}
RADIUS = {"anneal": 1.0, "max": math.inf, "bounds": (0.0, math.inf), "every": 1}
COSINE = {"memory": 0.0, "gated": False, "capped": False, "shift": 0.0}
LETS = {"estimator": "algorithm1", "objective": "squared-gap", "length_free": False, "rule": "adam"}
AUTO = {"estimator": "finite-difference", "objective": "validation", "length_free": True, "rule": "cosine"} | {
    "every": 10,
    "memory": 0.99,
    "gated": True,
}
RULES = {"lr": 1e-4, "betas": (0.9, 0.999), "nu_eps": 1e-8, "decay": 1.0, "kappa": 0.3}
METHODS: dict[str, State] = {
    "erm": {"policy": "never"},
    "sam": {},
    "asam": {"perturbation": "adaptive"},
    "gsam": {"combiner": "surrogate-gap", "alpha": 0.4},
    "esam": {"perturbation": "masked", "keep": 0.5},
    "rst": {"policy": "bernoulli"},
    "looksam": {"policy": "every-k", "combiner": "reuse", "alpha": 0.7},
    "ae-sam": {"policy": "gradient-norm"},
    "ae-looksam": {"policy": "gradient-norm", "combiner": "reuse", "alpha": 0.7},
    "rsam": {"perturbation": "random"},
    "gnp": {"combiner": "mix", "alpha": 0.8},
    "fsam": {"perturbation": "friendly"},
    "le-sam": {"radius": "loss-equated"},
}


def settings(name: str, **options: Any) -> SimpleNamespace:
    """The choices and numbers of a method by name, `lets-` and `auto-` included, with options on top."""
    prefix, _, method = name.partition("-")
    learned = {"lets": {"radius": "learned", **LETS}, "auto": {"radius": "learned", **AUTO}}.get(prefix)
    chosen = METHODS[name] if learned is None else {**METHODS[method], **learned}
    return SimpleNamespace(**(AXES | PERTURBATION | POLICY | RADIUS | COSINE | LETS | RULES | chosen | options))


def dot(a: Tensors, b: Tensors) -> Tensor:
    """⟨a, b⟩."""
    return torch.stack([(x * y).sum() for x, y in zip(a, b, strict=True)]).sum()


def norm(a: Tensors) -> Tensor:
    """‖a‖₂."""
    return dot(a, a).sqrt()


def add(a: Tensors, s: Tensor | float, b: Tensors) -> Tensors:
    """a + s b."""
    return [x + s * y for x, y in zip(a, b, strict=True)]


def times(s: Tensors | Tensor | float, a: Tensors) -> Tensors:
    """s a for a number, s ⊙ a for a list."""
    return [x * y for x, y in zip(s if isinstance(s, list) else [s] * len(a), a, strict=True)]


def orthogonal(a: Tensors, b: Tensors) -> Tensors:
    """a − (⟨a,b⟩/⟨b,b⟩) b, the part of a that is orthogonal to b."""
    return add(a, -dot(a, b) / dot(b, b), b)


def gradient(losses: Losses, theta: Tensors, batch: Batch) -> tuple[Tensor, Tensors]:
    """L(B; θ) and ∇L(B; θ)."""
    theta = [x.detach().requires_grad_() for x in theta]
    loss = losses(theta, batch).mean()
    return loss.detach(), list(torch.autograd.grad(loss, theta))


def hessian_vector(losses: Losses, theta: Tensors, batch: Batch, v: Tensors) -> Tensors:
    """∇²L(B; θ) v = ∇_θ ⟨∇L(B; θ), v⟩."""
    theta = [x.detach().requires_grad_() for x in theta]
    g = torch.autograd.grad(losses(theta, batch).mean(), theta, create_graph=True)
    return list(torch.autograd.grad(dot(list(g), v), theta))


def jvp(f: Callable[..., Tensors], x: Tensors, b: Tensors) -> Tensors:
    """The derivative of f at x along b, by autograd."""
    return list(torch.autograd.functional.jvp(lambda *x: tuple(f(*x)), tuple(x), tuple(b))[1])


def sgd(theta: Tensor, d: Tensor, state: State, o: State) -> tuple[Tensor, State]:
    """u_t = μ u_{t−1} + (1−τ)(d + λθ), u_0 = d + λθ;  θ − η u_t, with Nesterov θ − η (d + λθ + μ u_t)."""
    d = d + o["weight_decay"] * theta
    if o["momentum"] == 0:
        return theta - o["lr"] * d, state
    u = o["momentum"] * state["u"] + (1 - o["dampening"]) * d if state else d
    return theta - o["lr"] * (d + o["momentum"] * u if o["nesterov"] else u), {"u": u}


def adam(theta: Tensor, d: Tensor, state: State, o: State) -> tuple[Tensor, State]:
    """m = β₁m + (1−β₁)d, s = β₂s + (1−β₂)d² with d + λθ for d;  θ − η m̂/(√ŝ + ε), hats divide by 1 − βⁿ."""
    d = d + o["weight_decay"] * theta
    (beta1, beta2), n = o["betas"], state.get("n", 0) + 1
    m = beta1 * state.get("m", 0.0) + (1 - beta1) * d
    s = beta2 * state.get("s", 0.0) + (1 - beta2) * d**2
    m_hat, s_hat = m / (1 - beta1**n), s / (1 - beta2**n)
    return theta - o["lr"] * m_hat / (s_hat.sqrt() + o["eps"]), {"n": n, "m": m, "s": s}


def adamw(theta: Tensor, d: Tensor, state: State, o: State) -> tuple[Tensor, State]:
    """Adam from (1 − ηλ)θ: the weight decay does not pass through the moments."""
    return adam((1 - o["lr"] * o["weight_decay"]) * theta, d, state, {**o, "weight_decay": 0.0})


class Base(NamedTuple):
    """A base optimizer: its rule for one tensor, and every tensor's options (those of its torch group)."""

    rule: Callable[[Tensor, Tensor, State, State], tuple[Tensor, State]]
    options: Sequence[State]

    def step(self, theta: Tensors, d: Tensors, states: list[State]) -> tuple[Tensors, list[State]]:
        """θ_{t+1} = base(θ_t, d), and the state after it."""
        new = [self.rule(*x) for x in zip(theta, d, states, self.options, strict=True)]
        return [x for x, _ in new], [s for _, s in new]

    def jacobian(self, theta: Tensors, d: Tensors, states: list[State], b: Tensors) -> Tensors:
        """J b with J = −dθ_{t+1}/dd: autograd through the update, to check the closed forms."""
        return times(-1.0, jvp(lambda *d: self.step(theta, list(d), states)[0], d, b))


class World(NamedTuple):
    """What is given: losses, base, along which dim a convolution weight's filters lie, all that is random."""

    losses: Losses
    base: Base
    filter_dims: Sequence[int | None]
    uniforms: Callable[[int, int], Sequence[float]]  # (t, n) → n numbers in [0, 1) for step t
    noise: Callable[[int], Tensors]  # t → standard Gaussian tensors for step t


class Step(NamedTuple):
    """What one step did: θ_{t+1}, ρ_t, ρ_{t+1}, perturbed or not, g_ν if formed, samples in the last pass."""

    theta: Tensors
    rho: float
    next_rho: float
    perturbed: bool
    g_nu: float | None
    samples: int


def filter_norm(x: Tensor, dim: int | None) -> Tensor:
    """‖c_i‖ of every filter c_i = x[i] along `dim`, shaped to broadcast; without a dim, ‖x‖."""
    return (x**2).sum([i for i in range(x.ndim) if i != dim], keepdim=True).sqrt()


def direction(o: Any, w: World, t: int, theta: Tensors, m: Tensors | None, g: Tensors) -> Tensors:
    """v, with ε = ρ v.

    SAM v = g/‖g‖; ASAM v = T²g/‖Tg‖ with T = |θ| + ξ, ‖c_i‖ + ξ on all entries of a convolution filter c_i;
    ESAM v_S = g_S/(β‖g_S‖) on the kept tensors S (T is their indicator); FriendlySAM: SAM's for g − σm, m
    the running mean of earlier gradients; RSAM v = z/‖z‖, z Gaussian with each filter scaled to ‖θ_i‖.
    """
    if o.perturbation == "random":
        shapes = [(x, y, 0 if x.ndim > 1 else None) for x, y in zip(theta, w.noise(t), strict=True)]
        z = [filter_norm(x, dim) / filter_norm(y, dim) * y for x, y, dim in shapes]
        return times(1 / norm(z), z)
    T, beta = [torch.ones_like(x) for x in theta], 1.0
    if o.perturbation == "adaptive":
        filters = zip(theta, w.filter_dims, strict=True)
        T = [(x.abs() if dim is None else filter_norm(x, dim)) + o.xi for x, dim in filters]
    if o.perturbation == "masked":
        T, beta = [x * (u < o.beta) for x, u in zip(T, w.uniforms(t, len(T)), strict=True)], o.beta
    if o.perturbation == "friendly" and m is not None:
        g = add(g, -o.sigma, m)
    return times(1 / (beta * (norm(times(T, g)) + o.eps)), times(T, times(T, g)))


def perturbs(o: Any, w: World, t: int, n: float, mu: float, var: float) -> bool:
    """The policy. AE-SAM perturbs iff n = ‖g‖² ≥ μ + c_t σ; c_t goes from λ₂ to λ₁: more often with time."""
    c = t / o.total_steps * o.lambda1 + (1 - t / o.total_steps) * o.lambda2
    return {
        "always": True,
        "never": False,
        "bernoulli": w.uniforms(t, 1)[0] < o.p,
        "every-k": t % o.k == 0,
        "gradient-norm": n >= mu + c * math.sqrt(var),
    }[o.policy]


def combine(o: Any, g: Tensors, g_hat: Tensors) -> Tensors:
    """d on a perturbed step: ĝ (SAM, LookSAM), ĝ − α g_⊥ĝ (GSAM), (1−α) g + α ĝ (gradient-norm penalty)."""
    if o.combiner == "surrogate-gap":
        return add(g_hat, -o.alpha, orthogonal(g, g_hat))
    return add(times(1 - o.alpha, g), o.alpha, g_hat) if o.combiner == "mix" else g_hat


def select(o: Any, w: World, theta: Tensors, there: Tensors, batch: Batch) -> Batch:
    """ESAM's data: the γB samples (rounded, at least one) whose loss rises most from θ to θ + ε."""
    if o.keep == 1:
        return batch
    rise = w.losses(there, batch) - w.losses(theta, batch)
    top = rise.topk(max(1, round(o.keep * len(rise)))).indices
    return tuple(x[top] for x in batch)


def loss_equated(o: Any, t: int, g: Tensors) -> Tensor:
    """LE-SAM: ρ_t = min(σ_t/‖g‖, max), a fixed linearised rise of the loss; σ_t ends on a cosine."""
    progress = max(0.0, (t / o.total_steps - o.anneal) / (1 - o.anneal)) if o.anneal < 1 else 0.0
    sigma = o.sigma * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    return (sigma / (norm(g) + 1e-12)).clamp(max=o.max)


def upper_gradient(o: Any, L_tr: Tensor, g_bar_tr: Tensors, L_vl: Tensor, g_bar_vl: Tensors) -> Tensors:
    """a = ∇U(θ_{t+1}); U is ½(L_vl − L_tr)² "squared-gap", L_vl − L_tr "gap", or L_vl "validation"."""
    gap = add(g_bar_vl, -1.0, g_bar_tr)
    return {"squared-gap": times(L_vl - L_tr, gap), "gap": gap, "validation": g_bar_vl}[o.objective]


def slope(o: Any, H: Operator, rho: Tensor, v: Tensors, v_bar: Tensors, g: Tensors, g_hat: Tensors) -> Tensors:
    """b, for dĝ/dρ = H v with H = ∇²L(B; θ_t + ρv): H v itself ("exact") or (ĝ − g)/ρ ("finite-difference").

    The paper takes diag(ĝ²) for H, and direction(ḡ_tr) ("algorithm1") or v ("appendix") for v.
    Length-free: less the part along ĝ, which only makes the step longer or shorter.
    """
    if o.estimator == "exact":
        b = H(v)
    elif o.estimator == "finite-difference":
        b = times(1 / rho, add(g_hat, -1.0, g))
    else:
        b = times(times(g_hat, g_hat), v_bar if o.estimator == "algorithm1" else v)
    return orthogonal(b, g_hat) if o.length_free else b


def learn(o: Any, rho: Tensor, state: State, a: Tensors, J_b: Tensors, L: State) -> tuple[Tensor, State, float]:
    """ρ_{t+1} = exp(ν_{t+1}) within bounds: Adam on ν by g_ν = −⟨a, J ρ b⟩, or ν + κ·every·γ·cos(a, J b).

    With a shift s it is ν = log(ρ + s). γ is 1, or gated 1 − L̄_tr/L̄_vl within 0 and 1, with the means
    L̄ ← λ^every·L̄ + (1 − λ^every)·L. Capped, ν does not grow while the mean of L_tr(θ_t + ρv) is above L̄_vl.
    """
    g_nu, nu = -rho * dot(a, J_b), (rho + o.shift).log()
    if o.rule == "cosine":
        beta = o.memory**o.every
        state = {k: beta * state.get(k, x) + (1 - beta) * x for k, x in L.items()}
        gamma = (1 - state["tr"] / state["vl"]).clamp(0, 1) if o.gated else 1.0
        move = o.kappa * o.every * gamma * dot(a, J_b) / (norm(a) * norm(J_b))
        nu = nu + (move.clamp(max=0) if o.capped and state["there"] > state["vl"] else move)
    else:
        lr = o.lr * o.decay ** state.get("n", 0)
        nu, state = adam(nu, g_nu, state, {"lr": lr, "betas": o.betas, "eps": o.nu_eps, "weight_decay": 0.0})
    return (nu.exp() - o.shift).clamp(*o.bounds), state, g_nu.item()


def match(o: Any, rho: Tensor, state: State, L: State) -> tuple[Tensor, State]:
    """ρ_{t+1} = γ·(L̄_vl − L̄_tr)/s̄ within bounds and within ρ/e and eρ, γ² = 1 − L̄_tr/L̄_vl within 0 and 1.

    s = (L_tr(θ_t + ρv) − L_tr(θ_t))/ρ; means L̄ ← λL̄ + (1 − λ)L with λ = memory.
    """
    now = {"tr": L["tr"], "vl": L["vl"], "s": (L["there"] - L["tr"]) / rho}
    state = {k: o.memory * state.get(k, x) + (1 - o.memory) * x for k, x in now.items()}
    gap = state["vl"] - state["tr"]
    gamma = (gap / state["vl"]).clamp(0, 1).sqrt()
    wanted = gamma * gap / state["s"].clamp(min=torch.finfo(rho.dtype).tiny)
    return wanted.clamp(rho / math.e, rho * math.e).clamp(*o.bounds), state


def trajectory(o: Any, w: World, theta: Tensors, rho_0: float, data: Iterable[tuple[Batch, Batch]]) -> list[Step]:
    """The steps of method `o` from θ_0 and ρ_0, over pairs of a training and a validation batch."""
    steps: list[Step] = []
    states, nu_state, rho = [State() for _ in theta], State(), torch.tensor(rho_0, dtype=torch.float64)
    mu, var, g_v, m, R = 0.0, math.exp(-10), None, None, [torch.zeros_like(x) for x in theta]
    for t, (batch, val_batch) in enumerate(data):
        L, g = gradient(w.losses, theta, batch)
        n = dot(g, g).item()
        mu = o.delta * mu + (1 - o.delta) * n
        var = o.delta * var + (1 - o.delta) * (n - mu) ** 2
        rho = loss_equated(o, t, g) if o.radius == "loss-equated" else rho
        perturbed = perturbs(o, w, t, n, mu, var) or (o.combiner == "reuse" and g_v is None)
        d, kept, next_rho, g_nu = g, batch, rho, None
        if perturbed:
            v_of = partial(direction, o, w, t, theta, m)
            v = v_of(g)
            there = add(theta, rho, v)
            kept = select(o, w, theta, there, batch)
            L_there, g_hat = gradient(w.losses, there, kept)
            d, g_v = combine(o, g, g_hat), orthogonal(g_hat, g)
        elif o.combiner == "reuse" and g_v is not None:  # LookSAM between its perturbed steps
            d = add(g, o.alpha * norm(g) / norm(g_v), g_v)
        m = g if m is None else add(times(o.momentum, m), 1 - o.momentum, g)
        new, new_states = w.base.step(theta, d, states)
        if perturbed and o.radius == "learned":
            tr, vl = gradient(w.losses, new, batch), gradient(w.losses, new, val_batch)
            b = slope(o, partial(hessian_vector, w.losses, there, kept), rho, v, v_of(tr[1]), g, g_hat)
            if o.estimator in ("algorithm1", "appendix"):  # as printed: J = η
                J_b = [group["lr"] * x for group, x in zip(w.base.options, b, strict=True)]
            else:  # R_t = ρ·(∂d/∂ĝ)·b + λR_{t−1}
                R = add(times(rho, jvp(lambda *x, g=g: combine(o, g, list(x)), g_hat, b)), o.memory, R)
                J_b = w.base.jacobian(theta, d, states, times(1 / rho, R))
        if perturbed and o.radius == "learned" and sum(s.perturbed for s in steps) % o.every == 0:
            a = upper_gradient(o, *tr, *vl)
            next_rho, nu_state, g_nu = learn(o, rho, nu_state, a, J_b, {"tr": L, "there": L_there, "vl": vl[0]})
        if perturbed and o.radius == "matched" and sum(s.perturbed for s in steps) % o.every == 0:
            L_vl, _ = gradient(w.losses, new, val_batch)
            next_rho, nu_state = match(o, rho, nu_state, {"tr": L, "there": L_there, "vl": L_vl})
        steps.append(Step(new, rho.item(), next_rho.item(), perturbed, g_nu, len(kept[0])))
        theta, states, rho = new, new_states, next_rho
    return steps
