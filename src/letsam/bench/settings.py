"""What `letsam bench` times, and how. No torch here until the settings are resolved."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..experiments.config import Spec

with suppress(ImportError):  # the command line alone reads the annotation that it is for
    import tyro

CHOICES = {
    "modes": ("eager", "captured", "compiled"),
    "base": ("sgd", "adamw"),
    "dtype": ("bfloat16", "float32"),
}


@dataclass(frozen=True)
class Settings:
    """The settings of `letsam bench`; what is None depends on the model and the device, and `resolved` fills it in."""

    model: str | None = None
    """resnet18, wrn28-10, vit-s, decoder-125m, decoder-350m, mlp-2000 or small-cnn, with options such as
    decoder-125m:width=512,heads=8; default resnet18 on CUDA, small-cnn on a CPU."""
    batch: int | None = None
    """Samples a batch; default by model."""
    methods: tuple[str, ...] = ("erm", "sam", "asam", "gsam", "lets-sam", "auto-sam:every=10")
    """Methods with their options, such as sam:rho=0.1 (see letsam list)."""
    base: str | None = None
    """The optimizer inside, fused: sgd (with momentum 0.9) or adamw; default sgd, for transformers adamw."""
    dtype: str | None = None
    """bfloat16 (by autocast) or float32; default bfloat16 on CUDA, float32 on a CPU."""
    modes: tuple[str, ...] | None = None
    """How our passes run: eager, captured in a CUDA graph, or compiled and captured; default eager captured on CUDA,
    eager on a CPU."""
    peer: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """PATH:CLASS of another SAM to time, used as CLASS(params, base class, rho=0.05, **options of the base) with
    first_step and second_step; may be given several times."""
    steps: int | None = None
    """Steps to time; default 100 on CUDA, 50 on a CPU."""
    warmup: int | None = None
    """Steps before that; default 20 on CUDA, 5 on a CPU."""
    device: str | None = None
    """cpu, cuda or cuda:N; default cuda where there is one."""

    def resolved(self) -> Settings:
        """Checked, with every default filled in; ValueError names what is wrong. Times nothing."""
        import torch

        from .tasks import find_task

        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        cuda = _is_cuda(device)
        model = Spec.parse(self.model or ("resnet18" if cuda else "small-cnn"))
        task = find_task(model)
        full = replace(
            self,
            model=str(model),
            batch=task.batch if self.batch is None else self.batch,
            methods=tuple(str(Spec.parse(method)) for method in self.methods),
            base=self.base or task.base,
            dtype=self.dtype or ("bfloat16" if cuda else "float32"),
            modes=(("eager", "captured") if cuda else ("eager",)) if self.modes is None else self.modes,
            steps=(100 if cuda else 50) if self.steps is None else self.steps,
            warmup=(20 if cuda else 5) if self.warmup is None else self.warmup,
            device=device,
        )
        full._check(cuda)
        return full

    def _check(self, cuda: bool) -> None:
        from .contenders import check_methods
        from .peers import load_peers

        graphs = [mode for mode in self.modes or () if mode != "eager"]
        warmup = 3 if graphs else 1  # a pass is captured when it comes the second time
        for name, least in (("batch", 2), ("steps", 1), ("warmup", warmup)):
            if getattr(self, name) < least:
                raise ValueError(f"--{name} is {getattr(self, name)}; give at least {least}")
        for name in ("methods", "modes", "peer"):
            values = getattr(self, name)
            if twice := [value for value in values if values.count(value) > 1]:
                raise ValueError(f"--{name}: {twice[0]} is given twice; give it once")
        for name, choices in CHOICES.items():
            given = getattr(self, name)
            for value in given if isinstance(given, tuple) else (given,):
                if value not in choices:
                    raise ValueError(f"--{name} is {value}; choose from {', '.join(choices)}")
        if not self.methods or not self.modes:
            raise ValueError("give --methods and --modes at least one each, or leave them out")
        if graphs and not cuda:
            raise ValueError(f"--modes {graphs[0]} needs a CUDA device, and --device is {self.device}: use eager")
        load_peers(self.peer)
        check_methods(self)

    def command(self) -> str:
        """The command line that times the same."""
        words = ["letsam", "bench"]
        for name, value in asdict(self).items():
            if name == "peer":
                words += [word for peer in value for word in ("--peer", peer)]
            elif value is not None:
                words += [f"--{name}", *(value if isinstance(value, tuple) else (str(value),))]
        return shlex.join(words)

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for the record."""
        return asdict(self)


def _is_cuda(device: str) -> bool:
    """Whether a device that exists is a CUDA device."""
    import torch

    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (":" in device and not index.isdecimal()):
        raise ValueError(f"--device is {device}; choose from cpu, cuda, cuda:N")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ValueError(f"--device is {device}, and torch sees {torch.cuda.device_count()} CUDA devices; use cpu")
    return kind == "cuda"
