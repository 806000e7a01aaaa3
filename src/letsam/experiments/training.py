"""The settings of a run. Whatever is added later, a record of an older version keeps its identity."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import letsam

from ..data import usual_part
from .config import AXES, SETS
from .control import control
from .data.glue import GLUE
from .models import MODELS, TRANSLATORS

IN_MEMORY = ("cifar10", "cifar100", "fashion-mnist", "digits")
SEEDS = 2**32 - 1
"""The largest one: what every generator takes."""
IMAGES, TEXT = (*IN_MEMORY, "imagenet"), ("iwslt14", "multi30k")
PLAIN = ("rmsprop", "nadam", "radam", "adagrad", "adamax", "adadelta")
"""Bases of which lr and weight_decay are set alone; the rest is torch's default."""
BASES = ("sgd", "adam", "adamw", *PLAIN)
SCHEDULES = ("cosine", "linear", "exponential", "inverse-sqrt", "constant")
LATER = {
    "beta2": 0.999,
    "average": 0,
    "eps": 1e-8,
    "clip": 0.0,
    "dropout": None,
    "length": 128,
    "back": 0.0,
    "cutout": 0,
    "nesterov": False,
}
"""Settings that came after the first records: at these values they are not part of a run's identity."""
AUTO, MATCHED = 3, 2
"""Part of the identity of auto-* and of a matched radius, and another number whenever what they do changes: a record of
an earlier rule is not one of the present."""
WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text", dict: "a table, { … }"}


@dataclass(frozen=True)
class Training:
    """One run: everything that decides its numbers, and nothing else."""

    data: str = "cifar10"
    model: str = "resnet18"
    method: str = "erm"
    rho: float | None = None
    """The radius, the first one if it is learned; None: the method's own."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further options of the method."""
    seed: int = 0
    epochs: int = 200
    batch: int = 128
    """Images or sentences to classify; of translation the tokens of the longer side, padding included."""
    base: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "cosine"
    warmup: int = 0
    """Steps in which the learning rate rises to its value."""
    label_smoothing: float = 0.0
    ema: float = 0.0
    """The share of the old average that an exponential moving average of the weights keeps at a step; 0: none. Where
    there is one, it is what is tested."""
    noise: float = 0.0
    """The share of wrong training labels."""
    validation: str = "training"
    """Where validation batches come from: the training set, as in the paper, or a part of it that is held out (a tenth,
    at most 500); for text the set's own validation part."""
    augment: bool = True
    precision: str = "bfloat16"
    compile: bool = True
    images: int | None = None
    """Training images or sentence pairs, the first ones of a permutation; None: all of them."""
    beta2: float = 0.999
    """Of Adam and AdamW."""
    average: int = 0
    """The mean of the weights after each of so many last epochs is what is tested; 0: the last weights."""
    eps: float = 1e-8
    """Of Adam and AdamW."""
    clip: float = 0.0
    """The largest norm of the gradient that the base steps with; 0: any."""
    dropout: float | None = None
    """Before the classifier of sentences; None: the checkpoint's own."""
    length: int = 128
    """Tokens of a sentence or pair of sentences; longer ones are cut."""
    back: float = 0.0
    """The share of the epochs, at the end, in which what was held out is trained on too, and the radius stays."""
    cutout: int = 0
    """The side in pixels of a square that is blanked in half of the training images, each time elsewhere; 0: none."""
    nesterov: bool = False
    """Nesterov's momentum in SGD."""

    def __post_init__(self) -> None:
        self._check_types()
        self._check_model()
        if self.ema and self.average:
            raise ValueError("ema and average are two averages of the weights; give one of them")
        one_of("method", self.method, letsam.list_methods())
        one_of("base", self.base, BASES)
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("validation", self.validation, ("training", "held-out"))
        one_of("precision", self.precision, ("bfloat16", "float32"))
        for name in ("epochs", "batch", "lr", "eps", "length", "images"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give a positive number")
        for name in ("rho", "weight_decay", "warmup", "average", "clip", "seed", "cutout"):
            if getattr(self, name) is not None and getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give 0 or a positive number")
        if self.average > self.epochs:
            raise ValueError(f"average is {self.average}, and there are {self.epochs} epochs; give as many at most")
        for name in ("noise", "label_smoothing", "ema", "beta2", "back", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give a number from 0 to below 1")
        if self.seed > SEEDS:
            raise ValueError(f"seed is {self.seed}; give a whole number from 0 to {SEEDS}")
        self._check_images()
        if self.nesterov and (self.base != "sgd" or not self.momentum):
            raise ValueError("nesterov is of base = 'sgd' with a momentum; leave it away")
        if self.base in PLAIN and (given := [x for x in ("eps", "beta2") if getattr(self, x) != LATER[x]]):
            raise ValueError(f"{given[0]} is a setting of adam and adamw, and the base is {self.base}; leave it away")
        if self.back and (self.validation != "held-out" or self.data in TEXT):
            raise ValueError("back gives back what validation = 'held-out' took from the training set; it took nothing")
        if self.cutout and (self.data not in IN_MEMORY or not self.augment):
            raise ValueError(f"cutout augments {', '.join(IN_MEMORY)}, with augment = true; leave it away")
        if axes := [name for name in AXES if name in self.options and name != "radius"]:
            raise ValueError(f"{axes[0]} of options is an object; combine axes in Python with letsam.create")
        if "radius" in self.options:
            control(self.options["radius"], 1, self.seed)

    def _check_images(self) -> None:
        """Not more than there are, and enough to hold some out."""
        if self.images is None:
            return
        if self.data in IN_MEMORY and self.images > SETS[self.data]:
            raise ValueError(f"images is {self.images}, and {self.data} has {SETS[self.data]}; give as many at most")
        if self.validation == "held-out" and self.data not in TEXT and not usual_part(self.images):
            raise ValueError(f"images is {self.images}, of which a tenth is held out, which is none; give 6 or more")

    def _check_types(self) -> None:
        """TOML and JSON have values of any type for any setting."""
        for name, kinds in _types().items():
            value = getattr(self, name)
            if type(value) not in kinds or (isinstance(value, float) and not math.isfinite(value)):
                raise ValueError(f"{name} is {value!r}; give {next(WORDS[k] for k in WORDS if k in kinds)}")

    def _check_model(self) -> None:
        """Sentences are classified by any checkpoint, all other sets by models of ours."""
        one_of("data", self.data, (*IMAGES, *TEXT, *GLUE))
        if self.data in GLUE:
            self._check_sentences()
            return
        one_of("model", self.model, (*MODELS, *TRANSLATORS))
        if self.data in TEXT and self.model not in TRANSLATORS:
            raise ValueError(
                f"{self.data} is text, and {self.model} reads images; choose from {', '.join(TRANSLATORS)}"
            )
        if self.data in IMAGES and self.model not in MODELS:
            raise ValueError(f"{self.data} has images, and {self.model} reads text; choose from {', '.join(MODELS)}")
        if (self.data == "digits") != (self.model == "small-cnn"):
            raise ValueError(f"{self.model} does not read {self.data}: small-cnn reads the digits, and it alone does")
        if self.model == "mlp" and self.data != "fashion-mnist":
            raise ValueError(f"mlp does not read {self.data}: its images are those of fashion-mnist")
        for name in ("dropout", "length"):
            if getattr(self, name) != LATER[name]:
                raise ValueError(f"{name} is a setting of sentences, and {self.data} has none; leave it away")

    def _check_sentences(self) -> None:
        if self.model in (*MODELS, *TRANSLATORS) or not self.model:
            raise ValueError(
                f"{self.data} has sentences, and the model is {self.model!r}; give a checkpoint, such as "
                "'microsoft/deberta-base', or its folder"
            )
        if not GLUE[self.data].classes and (self.noise or self.label_smoothing):
            raise ValueError(f"{self.data} has scores, not classes: leave noise and label_smoothing away")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; give a number from 0 to below 1")

    @property
    def identity(self) -> str:
        """Twelve hex digits that change with any setting."""
        settings = {name: value for name, value in asdict(self).items() if name not in LATER or value != LATER[name]}
        if self.method.startswith("auto-"):
            settings["rule"] = AUTO
        elif self.options.get("radius", {}).get("rule") == "matched":
            settings["rule"] = MATCHED
        if self.validation == "held-out":
            settings["epoch"] = "whole"  # earlier ones had the steps of what was left to train on
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def scaled(self, scale: float) -> Training:
        """The same with fewer epochs, as much less of a warm-up and of an average: another run, another identity."""
        if not 0 < scale <= 1:
            raise ValueError(f"--scale is {scale}; give a number above 0, at most 1")
        epochs = max(1, round(scale * self.epochs))
        share = epochs / self.epochs
        average = max(1, round(share * self.average)) if self.average else 0
        return replace(self, epochs=epochs, warmup=round(share * self.warmup), average=average)

    def __str__(self) -> str:
        noise = f", {100 * self.noise:g} % noise" if self.noise else ""
        return f"{self.method}, {self.model}, {self.data}{noise}, seed {self.seed}"


@cache
def _types() -> dict[str, tuple[type, ...]]:
    """The types that a setting may have: those of its field, and a whole number where there is a float."""
    found = {}
    for name, of in get_type_hints(Training).items():
        kinds = tuple(get_origin(kind) or kind for kind in (get_args(of) if isinstance(of, UnionType) else (of,)))
        found[name] = (int, *kinds) if float in kinds else kinds
    return found


def one_of(name: str, value: str, choices: Any) -> None:
    """ValueError with what comes near, or all choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; {hint(str(value), list(choices))}")


def hint(word: str, choices: list[str]) -> str:
    """The choice that was meant, or all of them."""
    close = difflib.get_close_matches(word, choices, 1)
    return f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(choices)}"
