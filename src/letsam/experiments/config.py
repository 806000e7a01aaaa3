"""What a comparison is: the settings that decide its numbers, and the names of its runs. No torch here."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

FORMAT = 2
SETS = {"digits": 1000, "fashion-mnist": 60_000, "cifar10": 50_000, "cifar100": 50_000}
"""What can be compared on, with its training images."""
USUAL: dict[str, dict[str, Any]] = {
    "digits": {"model": "small-cnn", "epochs": 80, "batch_size": 50, "lr": {"sgd": 0.03, "adamw": 2e-3}},
    "others": {"model": "resnet18", "epochs": 60, "batch_size": 128, "lr": {"sgd": 0.1, "adamw": 1e-3}},
}
"""Settings that nobody gave."""
WEIGHT_DECAY = {"sgd": 5e-4, "adamw": 0.05}
AXES = ("perturbation", "policy", "combiner", "radius", "process_group")


@dataclass(frozen=True)
class Config:
    """The settings of `letsam compare`; with the versions of the software they decide every number."""

    methods: tuple[str, ...] = ("erm", "sam", "asam", "lets-sam", "lets-asam", "auto-sam")
    """Methods with their options, such as sam:rho=0.1 or looksam:k=3,alpha=0.5 (see letsam list)."""
    seeds: tuple[int, ...] = (3,)
    """One number is how many seeds (0, 1, …); several are the seeds themselves."""
    data: Literal["digits", "fashion-mnist", "cifar10", "cifar100"] = "digits"
    """The images; all but the digits, which come with letsam, are fetched with letsam data."""
    model: str | None = None
    """Default: a small CNN for the digits, ResNet-18 for the others."""
    images: int | None = None
    """Training images, a random part of them; default: all."""
    epochs: int | None = None
    """Passes over the training set; default 80 for the digits, 60 for the others."""
    noise: float = 0.0
    """Share of the training labels that are drawn anew from all classes."""
    base: Literal["sgd", "adamw"] = "sgd"
    """The optimizer inside: SGD with momentum 0.9, or AdamW."""
    batch_size: int | None = None
    """Images a batch, for training and validation; default 50 for the digits, 128 for the others."""
    lr: float | None = None
    """Learning rate at the start of a cosine to 0; default 0.03 for sgd on the digits and 0.1 on the others, 0.002 and
    0.001 for adamw."""
    weight_decay: float | None = None
    """Weight decay; default 0.0005 for sgd, 0.05 for adamw."""

    def resolved(self) -> Config:
        """Checked, with every default filled in and the seeds written out."""
        usual = {**USUAL.get(self.data, USUAL["others"]), "weight_decay": WEIGHT_DECAY}
        filled = {
            name: (value.get(self.base, 0.0) if isinstance(value, dict) else value)
            for name, value in usual.items()
            if getattr(self, name) is None
        }
        full = replace(
            self,
            methods=tuple(str(Spec.parse(method)) for method in self.methods),
            seeds=tuple(range(self.seeds[0])) if len(self.seeds) == 1 else self.seeds,
            **filled,
        )
        full._check()
        return full

    def _check(self) -> None:
        assert self.epochs is not None
        assert self.batch_size is not None
        assert self.lr is not None
        assert self.weight_decay is not None
        _require(self.methods, "no methods: give --methods at least one (see letsam list)")
        _require(self.seeds, "no seeds: --seeds is a positive count, or two and more seeds")
        _require(all(0 <= seed < 2**32 for seed in self.seeds), "seeds run from 0 to 4294967295")
        for what, values in (("method", self.methods), ("seed", self.seeds)):
            twice = [value for value in values if values.count(value) > 1]
            _require(not twice, f"{what} {twice[0] if twice else ''} is given twice; give it once")
        _require(self.data in SETS, f"--data is {self.data}; choose from {', '.join(SETS)}")
        images, size = self.images or SETS[self.data], SETS[self.data]
        _require(10 <= images <= size, f"--images is {images}; give 10 to {size}, which is all that {self.data} has")
        _require(self.epochs >= 1, f"--epochs is {self.epochs}; give at least 1")
        _require(0 <= self.noise < 1, f"--noise is {self.noise}; give a share between 0 and 1")
        _require(self.base in WEIGHT_DECAY, f"--base is {self.base}; choose from {', '.join(WEIGHT_DECAY)}")
        _require(self.lr > 0 and math.isfinite(self.lr), f"--lr is {self.lr}; give a positive number")
        _require(
            self.weight_decay >= 0 and math.isfinite(self.weight_decay),
            f"--weight-decay is {self.weight_decay}; give a number of at least 0",
        )
        most = images - images // 10  # auto-* hold up to a tenth out
        _require(2 <= self.batch_size <= most, f"--batch-size is {self.batch_size}; give 2 to {most}")

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for config.json."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any) -> Config:
        """The reverse of `to_json`; refuses what this version does not know."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"not the configuration of a comparison in format {FORMAT}")
        values = {key: value for key, value in data.items() if key != "format"}
        if set(values) != {f.name for f in fields(cls)}:
            raise ValueError("the configuration has missing or unknown keys")
        values["methods"] = tuple(str(Spec.parse(method)) for method in values["methods"])
        values["seeds"] = tuple(values["seeds"])
        config = cls(**values)
        config._check()
        return config


@dataclass(frozen=True)
class Spec:
    """A method with options, as typed: name, or name:option=value,option=value."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Read `sam:rho=0.1`; values are Python literals, or words."""
        name, _, rest = text.strip().partition(":")
        options: dict[str, Any] = {}
        for part in re.split(r",(?![^()\[\]]*[)\]])", rest) if rest else []:
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not (key.isidentifier() and equals and value):
                raise ValueError(f"method {text!r}: options look like {name}:rho=0.1,k=5")
            if key in AXES:
                raise ValueError(f"method {text!r}: {key} is an object; combine axes in Python with letsam.create")
            if key in options:
                raise ValueError(f"method {text!r}: option {key} is given twice")
            options[key] = _literal(value)
        return cls(name, options)

    def __str__(self) -> str:
        options = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name


@dataclass(frozen=True)
class Job:
    """One training run of a comparison: one method, one seed."""

    config: Config
    method: str
    seed: int

    def __str__(self) -> str:
        return f"{self.method} seed {self.seed}"

    @property
    def epochs(self) -> int:
        """Of the resolved configuration."""
        assert self.config.epochs is not None
        return self.config.epochs


def _literal(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for read in (ast.literal_eval, float):  # float knows inf and nan
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return text


def _require(condition: Any, message: str) -> None:
    if not condition:
        raise ValueError(message)
