"""The methods by name. A method is a choice of the four axes; `lets-<m>` and `auto-<m>` put a learned radius on m."""

from __future__ import annotations

import difflib
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from torch import nn
from torch.optim import Optimizer

from . import combiners, perturbations, policies, radius
from .optimizer import SharpnessAware

SAM = "Foret et al., Sharpness-Aware Minimization, ICLR 2021"
LETS = "LETS, Enhancing SAM by Learning Perturbation Radius"
OURS = "letsam's radius study"
_AE = dict.fromkeys(("lambda1", "lambda2", "delta"), "AE-SAM's paper")
AXES = ("perturbation", "policy", "combiner", "radius")


@dataclass(frozen=True)
class Preset:
    """The axes of a method, and where its defaults come from."""

    summary: str
    paper: str
    rho: float | None = 0.05
    perturbation: Any = perturbations.L2
    policy: Any = policies.Always
    combiner: Any = combiners.Perturbed
    radius: Any = radius.ConstantRadius
    keep: float = 1.0
    sources: dict[str, str] = field(default_factory=dict)

    def axes(self) -> dict[str, Any]:
        """The classes of the four axes, by the name of the axis."""
        return {axis: getattr(self, axis) for axis in AXES}


PRESETS = {
    "erm": Preset("the base optimizer alone", "no perturbation", None, policy=policies.Never),
    "sam": Preset("the gradient at the worst point of an ℓ2 ball", SAM, sources={"rho": SAM}),
    "asam": Preset(
        "SAM in a ball that scales with the weights",
        "Kwon et al., ASAM, ICML 2021",
        0.5,
        perturbation=perturbations.Adaptive,
        sources={
            "rho": "ASAM's official README, CIFAR-10",
            "xi": LETS,
            "filterwise": f"{LETS}; the official code: False",
        },
    ),
    "gsam": Preset(
        "SAM that also shrinks the gap between perturbed and clean loss",
        "Zhuang et al., Surrogate Gap Guided SAM, ICLR 2022",
        combiner=combiners.SurrogateGap,
        sources={"rho": SAM, "alpha": "GSAM's official example"},
    ),
    "esam": Preset(
        "SAM on some of the tensors and on the samples that suffer most",
        "Du et al., Efficient SAM, ICLR 2022",
        perturbation=perturbations.Masked,
        keep=0.5,
        sources={
            "rho": "ESAM's official run script",
            "beta": "ESAM's official run script",
            "keep": "ESAM's official run script (γ)",
        },
    ),
    "rst": Preset(
        "SAM on a random half of the steps",
        "Zhao et al., Randomized Sharpness-Aware Training, 2022",
        policy=policies.Bernoulli,
        sources={"rho": SAM, "p": LETS},
    ),
    "looksam": Preset(
        "SAM every k steps, its direction reused in between",
        "Liu et al., Towards Efficient and Scalable SAM, CVPR 2022",
        policy=policies.EveryK,
        combiner=combiners.Reuse,
        sources={"rho": SAM, "k": LETS, "alpha": "pytorch_optimizer"},
    ),
    "ae-sam": Preset(
        "SAM on the steps where the gradient norm is high",
        "Jiang et al., An Adaptive Policy to Employ SAM, ICLR 2023",
        policy=policies.GradientNorm,
        sources={"rho": SAM, **_AE},
    ),
    "ae-looksam": Preset(
        "AE-SAM's steps with LookSAM's reuse in between",
        "Jiang et al., An Adaptive Policy to Employ SAM, ICLR 2023",
        policy=policies.GradientNorm,
        combiner=combiners.Reuse,
        sources={"rho": SAM, "alpha": "pytorch_optimizer", **_AE},
    ),
    "rsam": Preset(
        "a random direction in place of the worst one",
        "Liu et al., Random SAM, NeurIPS 2022 (its random part)",
        perturbation=perturbations.Random,
        sources={"rho": "as SAM, to compare with it"},
    ),
    "gnp": Preset(
        "a penalty on the gradient norm",
        "Zhao et al., Penalizing Gradient Norm, ICML 2022",
        0.1,
        combiner=combiners.Mix,
        sources={"rho": "the official CIFAR recipe (r)", "alpha": "the official CIFAR recipe"},
    ),
    "fsam": Preset(
        "SAM along the part of the gradient that is this batch's own",
        "Li et al., Friendly SAM, CVPR 2024",
        perturbation=perturbations.Friendly,
        sources={
            "rho": "the official class",
            "sigma": "the official class",
            "momentum": "the official class (λ)",
        },
    ),
    "le-sam": Preset(
        "SAM at the radius where the linearised loss rises by a fixed amount",
        "Wang et al., Fix the Loss, Not the Radius, ICML 2026",
        None,
        radius=radius.LossEquatedRadius,
        sources=dict.fromkeys(("sigma", "max", "anneal"), "the official code"),
    ),
}

_LETS: dict[str, Any] = {"decay": 0.99997}
_AUTO: dict[str, Any] = {
    "estimator": "finite-difference",
    "objective": "validation",
    "length_free": True,
    "rule": "cosine",
    "every": 10,
    "memory": 0.99,
    "gated": True,
}
_SOURCES = {
    "lets": dict.fromkeys(("estimator", "objective", "rule", "lr", "betas"), LETS)
    | {
        "initial": "not published: the method's own ρ",
        "decay": "not published: ×0.99 in 391 steps, a CIFAR epoch",
    },
    "auto": dict.fromkeys((*_AUTO, "kappa", "initial", "bounds", "shift"), OURS),
}


@dataclass(frozen=True)
class Method:
    """What `letsam.describe` tells; `required` are the options without a default."""

    name: str
    summary: str
    paper: str
    axes: dict[str, str]
    passes: float
    memory: int
    defaults: dict[str, tuple[Any, str]]
    required: tuple[str, ...]
    jacobian: str | None

    def takes(self, option: str) -> bool:
        """Whether `create` takes an option for this method."""
        return option in (*self.required, *self.defaults)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.summary}", f"  paper: {self.paper}"]
        lines += [f"  {axis}: {name}" for axis, name in self.axes.items()]
        lines += [f"  passes a step: {self.passes:g}", f"  extra memory in parameter copies: {self.memory}"]
        lines += [f"  {name} = {value}  ({source})" for name, (value, source) in self.defaults.items()]
        lines += [f"  {name}: has to be given" for name in self.required]
        return "\n".join(lines + ([f"  Jacobian of the step: {self.jacobian}"] if self.jacobian else []))


def list_methods() -> list[str]:
    """Every name that `create` takes."""
    with_radius = [name for name, preset in PRESETS.items() if preset.rho is not None]
    return [*PRESETS, *(f"lets-{m}" for m in with_radius), *(f"auto-{m}" for m in with_radius)]


def create(
    name: str, base: Optimizer, *, model: nn.Module | None = None, rho: float | None = None, **options: Any
) -> SharpnessAware:
    """The method `name` around a base optimizer.

    rho is the radius (the first one, if it is learned). Options are the axes themselves (perturbation=, policy=,
    combiner=, radius=), fields of the preset's axes (alpha=, k=, every=, …; `describe(name)` lists them), or arguments
    of `SharpnessAware` (keep=, replay_rng=, process_group=).
    """
    preset, settings = _resolve(name)
    arguments = {key: options.pop(key) for key in (*AXES, "keep", "replay_rng", "process_group") if key in options}
    if rho is not None:
        if "radius" in arguments:
            raise ValueError("give rho or radius, not both")
        if preset.rho is None:
            learned = " and learns its radius" if name.startswith("auto-") else ""
            raise ValueError(f"{name} has no rho to set{learned}; see letsam.describe({name!r})")
        settings["initial" if preset.radius is radius.LearnedRadius else "rho"] = rho
    classes = {axis: cls for axis, cls in preset.axes().items() if axis not in arguments}
    known = {f.name for cls in classes.values() for f in fields(cls)}
    for option in options.keys() - known:
        raise TypeError(f"{name} has no option {option!r}; {_hint(option, sorted(known | {'rho', 'keep'}))}")
    for axis, cls in classes.items():
        arguments[axis] = _make(name, cls, settings | options)
    _refuse_unread(name, arguments["radius"], options)
    return SharpnessAware(base, model=model, **{"keep": preset.keep, **arguments})


def describe(name: str) -> Method:
    """What a method is: axes, passes and memory of a step, defaults with their sources, paper."""
    preset, settings = _resolve(name)
    every = [f for cls in preset.axes().values() for f in fields(cls)]
    values = {f.name: settings.get(f.name, f.default) for f in every} | (
        {"keep": preset.keep} if preset.keep < 1 else {}
    )
    required = tuple(key for key, value in values.items() if value is MISSING)
    filled = values | dict.fromkeys(required, 1)
    policy = _make(name, preset.policy, filled)
    learned = _make(name, preset.radius, filled) if preset.radius is radius.LearnedRadius else None
    unused = set(values) if preset.policy is policies.Never else set(learned.unused if learned else ())
    jacobian = None
    if learned:
        jacobian = _PRINTED if learned.estimator in ("algorithm1", "appendix") else _CLOSED_FORM
    return Method(
        name=name,
        summary=preset.summary,
        paper=preset.paper,
        axes={axis: cls.__name__ for axis, cls in preset.axes().items()},
        passes=1 + policy.rate * (1 + (learned.passes / learned.every if learned else 0)),
        memory=_memory(preset, learned),
        defaults={
            k: (v, preset.sources.get(k, "letsam")) for k, v in values.items() if v is not MISSING and k not in unused
        },
        required=required,
        jacobian=jacobian,
    )


_PRINTED = "the plain learning rate, as the paper prints it"
_CLOSED_FORM = "closed form for SGD (momentum, dampening, Nesterov), Adam and AdamW; the learning rate for other bases"


def _resolve(name: str) -> tuple[Preset, dict[str, Any]]:
    """The preset of a name and the settings that differ from its axes' own defaults."""
    if not isinstance(name, str):
        raise TypeError(f"the method is {name!r}; give a name, one of letsam.list_methods()")
    if name not in list_methods():
        raise ValueError(f"no method is called {name!r}; {_hint(name, list_methods())}")
    kind, _, rest = name.partition("-")
    if kind not in _SOURCES:
        preset = PRESETS[name]
        return preset, {} if preset.rho is None else {"rho": preset.rho}
    inner = PRESETS[rest]
    assert inner.rho is not None
    sources = {**inner.sources, **_SOURCES[kind]}
    if kind == "lets":
        settings, story, paper = {"initial": inner.rho, **_LETS}, "its radius learned as in the paper", LETS
    else:
        # Start where a network that underfits loses nothing: from a radius that is far too large, an untrained one
        # gives no signal to shrink it. And do not get smaller: in half precision there would be no ĝ − g to see.
        small = inner.rho / 10
        settings = {"initial": small, "bounds": (small, 200 * inner.rho), "shift": inner.rho, **_AUTO}
        story, paper = "its radius learned, nothing to tune", OURS
        inner = replace(inner, rho=None, keep=1.0)  # ĝ − g has a meaning only if both come from the same samples
    summary, paper = f"{inner.summary}; {story}", f"{inner.paper}; {paper}"
    return replace(inner, summary=summary, paper=paper, radius=radius.LearnedRadius, sources=sources), settings


def _make(name: str, cls: Any, settings: dict[str, Any]) -> Any:
    missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in settings]
    if missing:
        raise ValueError(f"{name} needs {missing[0]}=, {_MEANING.get(missing[0], 'see letsam.describe')}")
    return cls(**{f.name: settings[f.name] for f in fields(cls) if f.name in settings})


def _refuse_unread(name: str, learned: Any, options: dict[str, Any]) -> None:
    """An option that the rule does not read would change nothing, without a word."""
    for option in options:
        if option in getattr(learned, "unused", ()) and option != "shift":  # shift=0 is how auto-* have rule="adam"
            other = "cosine" if learned.rule == "adam" else "adam"
            raise ValueError(f"{name} does not read {option}: drop it, or use rule={other!r} with it")


def _memory(preset: Preset, learned: radius.LearnedRadius | None) -> int:
    """Parameter copies alive during a pass: θ_t; g, or what the learned radius keeps; what the axes remember."""
    if preset.policy is policies.Never:
        return 0
    # What a perturbation remembers is there twice: the new value is installed when the base has stepped.
    remembered = len(preset.combiner.memories) + 2 * len(preset.perturbation.memories)
    remembered += len(learned.memories) if learned else 0
    return 1 + int(preset.combiner.needs_clean or learned is not None) + remembered


def _hint(word: str, choices: list[str]) -> str:
    close = difflib.get_close_matches(word, choices, 1)
    return f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(choices)}"


_MEANING = {"total_steps": "the number of steps of the whole training"}
