"""What is trained: a model by name, batches of its kind, the loss, the optimizer it is usually trained with."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..experiments.config import Spec
from ..experiments.models import COMPILE_IMAGES
from ..experiments.models.decoder import Decoder
from ..experiments.models.mlp import DeepMLP
from ..experiments.models.resnet import resnet18
from ..experiments.models.small_cnn import small_cnn
from ..experiments.models.vit import VisionTransformer
from ..experiments.models.wide_resnet import wide_resnet

Batch = tuple[Tensor, Tensor]
TOKENS = 512


def images(options: dict[str, Any], size: int) -> Batch:
    """Noise in the shape of CIFAR images, and labels."""
    side = options.get("size", 32)
    return torch.randn(size, 3, side, side), labels(options, size)


def digits(options: dict[str, Any], size: int) -> Batch:
    """Noise in the shape of the digits, and labels."""
    return torch.randn(size, 1, 8, 8), labels(options, size)


def vectors(options: dict[str, Any], size: int) -> Batch:
    """Noise as wide as the network, and labels."""
    return torch.randn(size, options.get("width", 64)), labels(options, size)


def tokens(options: dict[str, Any], size: int) -> Batch:
    """Texts of random tokens, and the same shifted by one."""
    length = min(TOKENS, options.get("context", TOKENS))
    text = torch.randint(options.get("vocabulary", 50304), (size, length + 1))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def labels(options: dict[str, Any], size: int) -> Tensor:
    """Random classes."""
    return torch.randint(options.get("classes", 10), (size,))


def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of classes or of next tokens."""
    return cross_entropy(outputs.flatten(0, -2), targets.flatten())


def sample_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """The same, sample by sample, for methods that choose among them."""
    every = cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none")
    return every.view(len(targets), -1).mean(1)


@dataclass(frozen=True)
class Task:
    """A model with its data; `options` go to the model, and the data follow them."""

    build: Callable[..., nn.Module]
    data: Callable[[dict[str, Any], int], Batch]
    batch: int
    base: str = "sgd"
    options: dict[str, Any] = field(default_factory=dict)

    def model(self, device: str) -> nn.Module:
        """The model at its start, the same whenever it is made on the same device."""
        torch.manual_seed(0)
        with torch.device(device):
            model = self.build(**self.options)
        return model.to(memory_format=torch.channels_last) if self._tuned(device) else model  # type: ignore[call-overload]

    def batches(self, number: int, size: int, device: str) -> list[Batch]:
        """So many batches, on the device."""
        torch.manual_seed(1)
        pairs = [self.data(self.options, size) for _ in range(number)]
        layout = torch.channels_last if self._tuned(device) else torch.contiguous_format
        return [(x.to(device, memory_format=layout), y.to(device)) for x, y in pairs]

    @property
    def compile(self) -> bool | Mapping[str, Any]:
        """How its passes are compiled: as those of the experiments."""
        return COMPILE_IMAGES if self.data in (images, digits) else True

    def _tuned(self, device: str) -> bool:
        """Whether images lie in the layout that tensor cores like."""
        return self.data in (images, digits) and device.startswith("cuda")


TASKS = {
    "resnet18": Task(resnet18, images, 128),
    "wrn28-10": Task(wide_resnet, images, 128),
    "vit-s": Task(VisionTransformer, images, 256, "adamw"),
    "decoder-125m": Task(Decoder, tokens, 8, "adamw"),
    "decoder-350m": Task(partial(Decoder, width=1024, depth=24, heads=16), tokens, 8, "adamw"),
    "mlp-2000": Task(DeepMLP, vectors, 2048),
    "small-cnn": Task(small_cnn, digits, 128),
}


def find_task(spec: Spec) -> Task:
    """The task of a model's name and options; ValueError for a name or an option that does not exist."""
    if spec.name not in TASKS:
        close = difflib.get_close_matches(spec.name, TASKS, 1)
        hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(TASKS)}"
        raise ValueError(f"no model is called {spec.name!r}; {hint}")
    found = TASKS[spec.name]
    task = Task(found.build, found.data, found.batch, found.base, spec.options)
    try:
        task.model("meta")
    except (TypeError, ValueError, RuntimeError, ZeroDivisionError) as error:
        raise ValueError(f"model {spec}: {' '.join(str(error).split())}") from None
    return task
