"""What the trainer does not do: refused when it is made, never done wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accelerate.utils import DistributedType
from torch.optim import Optimizer

from ...optimizer import SharpnessAware

_DDP = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)


def check_trainer(trainer: Any, method: SharpnessAware) -> None:
    """One line about the first thing that is not supported."""
    for found, advice in _cases(trainer, method):
        if found:
            raise ValueError(advice)


def check_base(base: Optimizer) -> None:
    """Schedule-free optimizers swap their weights in train() and eval(), behind the back of whoever wraps them."""
    if callable(getattr(base, "train", None)):
        raise ValueError(f"{type(base).__name__} has weights of its own for training: choose another optimizer")


def _cases(trainer: Any, method: SharpnessAware) -> Iterator[tuple[bool, str]]:
    args, kind = trainer.args, trainer.accelerator.distributed_type
    yield trainer.is_deepspeed_enabled, "DeepSpeed is not supported, it owns backward and step: launch with torchrun"
    sharded = trainer.is_fsdp_enabled or trainer.is_fsdp_xla_enabled
    yield sharded, "FSDP is not supported in Trainer: launch with torchrun, or use letsam.create with FSDP2"
    yield (
        args.n_gpu > 1,
        "DataParallel is not supported: launch with torchrun, or set CUDA_VISIBLE_DEVICES=0",
    )
    yield kind not in _DDP, f"{kind.value} is not supported: use one process, or launch with torchrun"
    own = getattr(trainer, "is_distributed_loading_by_transformers", False)  # since transformers 5.19
    own = own or getattr(trainer.accelerator, "parallelism_config", None) is not None
    yield own or trainer.is_model_parallel, "a model that is split over devices is not supported: load it on one"
    yield args.torch_compile, "torch_compile is not supported: set torch_compile=False"
    yield isinstance(trainer.optimizer, SharpnessAware), "optimizers= has a SharpnessAware: pass its .base, and method="
    if trainer.optimizer is None and trainer.optimizer_cls_and_kwargs is None:
        name = getattr(args.optim, "value", args.optim)
        special = any(word in name for word in ("lomo", "layerwise", "schedule_free"))
        yield special, f"optim={name!r} does not step on one gradient: choose another, such as adamw_torch"
    samples = "needs per-sample losses, which Trainer does not have: choose another method, or keep=1.0"
    yield method.keep < 1, f"keep={method.keep} (ESAM) {samples}"
