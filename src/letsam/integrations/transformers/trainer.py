"""SharpnessAwareMixin: the optimizer step of a Trainer in three verbs. The file to read.

    training_step   collects the micro-batches; at the last one, opt.backward: the clean and the perturbed pass over
                    all of them. The sharpness-aware gradient is in .grad, the weights are as they were.
    Trainer itself  clips that gradient, steps the optimizer and the schedule.
    on_optimizer_step   opt.learn: a learned radius moves, by the losses at the new weights.

A pass is Trainer's own training_step over every micro-batch, so that the loss, its normalisation by tokens, label
smoothing, autocast and gradient checkpointing are Trainer's, and overrides of compute_loss are called.
"""

from __future__ import annotations

import json
import logging
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, RandomSampler, Sampler
from transformers import Trainer, TrainerCallback

from ... import methods
from ...checks import within
from ...closures import clear_gradients
from ...data import is_given_back
from ...optimizer import SharpnessAware
from .held_out import Batches, Order, carve, countable, sampler_of
from .refusals import check_base, check_trainer

RECORD = "letsam.json"
GIVE_BACK = 0.25
log = logging.getLogger("letsam")
MicroBatch = tuple[Any, Any, int]
"""Inputs, the items that the loss is divided by, and else the number of micro-batches: by what Trainer saw with it."""
_Trainer: Any = object  # what comes after the mixin; Any, since its attributes are not known here


class SharpnessAwareMixin(_Trainer):
    """Put it before a trainer: class Mine(SharpnessAwareMixin, Seq2SeqTrainer).

    method and method_options are those of `letsam.create`; total_steps is filled in. A learned radius (lets-*, auto-*)
    needs data that is not trained on: radius_dataset, or else held_out (a share or a number; not given, a tenth, at
    most 500) of train_dataset, drawn with data_seed, or seed. The last epochs, give_back of all (not given, a quarter),
    train on that part, too, and the radius stays where it is. All other arguments are the trainer's.
    """

    def __init__(
        self,
        *args: Any,
        method: str,
        method_options: dict[str, Any] | None = None,
        radius_dataset: Any = None,
        held_out: float | int | None = None,
        give_back: float | None = None,
        **kwargs: Any,
    ) -> None:
        if give_back is not None:
            within("give_back", give_back, 0, 1)
        self.method, self.method_options = method, dict(method_options or {})
        trial = self._create(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.0), total_steps=1)
        super().__init__(*args, **kwargs)
        self.train_dataset: Any
        check_trainer(self, trial)
        self.radius_dataset = radius_dataset
        self.held_out: dict[str, int] | None = None
        self.give_back = 0.0
        self._order: Order | None = None
        self._gives_back = False
        if trial.needs_validation:
            self._hold_out(held_out, give_back)
        elif any(given is not None for given in (radius_dataset, held_out, give_back)):
            names = "radius_dataset, held_out and give_back"
            raise ValueError(f"{method} learns no radius: leave {names} away, or use auto-{method}")
        self._micro_batches: list[MicroBatch] = []
        self._batch: list[MicroBatch] = []
        self.add_callback(_Hooks(self))

    @property
    def sharpness_aware(self) -> SharpnessAware:
        """The optimizer, without accelerate's wrapper; `sharpness_aware.last` is the report of the last step."""
        return getattr(self.optimizer, "optimizer", self.optimizer)

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        """Trainer's; the state has the steps of the run from here on, which transformers 5.0 would say too late."""
        self.state.max_steps = num_training_steps
        super().create_optimizer_and_scheduler(num_training_steps)

    def create_optimizer(self, *model: Any) -> Optimizer:
        """Trainer's optimizer with the method around it."""
        base = super().create_optimizer(*model)  # the first versions of transformers 5 take no model
        if not isinstance(self.sharpness_aware, SharpnessAware):
            check_base(base)
            self.optimizer: Any = self._create(base, model=self.model, total_steps=self.state.max_steps)
        return self.optimizer

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Trainer's, over the whole set in an order that holds a part out and gives it back.

        Only where it is Trainer's random order that this one replaces: all others are orders of the training part.
        """
        loader, order = super().get_train_dataloader(), self._order
        if order is None or self.train_dataset is not order.rest or not isinstance(sampler_of(loader), RandomSampler):
            return loader
        self.train_dataset = order.whole
        try:
            whole = super().get_train_dataloader()
        finally:
            self.train_dataset = order.rest
        return whole if sampler_of(whole) is order else loader

    def _get_train_sampler(self, *dataset: Any) -> Sampler[int] | None:
        sampler, order = super()._get_train_sampler(*dataset), self._order
        if order is not None and self.train_dataset is order.whole and order.can_replace(sampler):
            return order
        return sampler

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Collect; with the last micro-batch of a step, leave its gradient in `.grad`. Returns the clean loss."""
        self._micro_batches.append((inputs, num_items_in_batch, self.current_gradient_accumulation_steps))
        if not self.accelerator.sync_gradients:
            return torch.zeros((), device=self.args.device)
        self._batch, self._micro_batches = self._micro_batches, []
        loss = self.sharpness_aware.backward(lambda: self._pass(model, self._batch))
        report: dict[str, Any] = self.sharpness_aware.last.tensors
        if "perturbation_norm" in report:  # to be logged, also after a resume
            self.sharpness_aware.param_groups[0]["sam_perturbation_norm"] = report["perturbation_norm"]
        self._hand_over(model, report["skipped"])
        return loss

    def _pass(self, model: nn.Module, batch: list[MicroBatch]) -> Tensor:
        """Forward and backward over every micro-batch as Trainer does it; ranks exchange gradients at the last one."""
        clear_gradients(model)
        losses = []
        for i, (inputs, num_items, parts) in enumerate(batch, 1):
            self.current_gradient_accumulation_steps = parts
            with nullcontext() if i == len(batch) else self.accelerator.no_sync(model):
                losses.append(super().training_step(model, inputs, num_items))
        if (scaler := self.accelerator.scaler) is not None:
            scale = scaler.scale(torch.ones((), device=losses[0].device))
            torch._foreach_mul_(_gradients(model), scale.reciprocal())
        return sum(losses[1:], losses[0])

    def _hand_over(self, model: nn.Module, skipped: Tensor) -> None:
        """The gradient as Trainer expects it: scaled if there is a scaler; one that makes no step if it must not."""
        if (scaler := self.accelerator.scaler) is not None:
            torch._foreach_mul_(_gradients(model), scaler.scale(torch.where(skipped, torch.nan, 1.0)))
        elif skipped:
            clear_gradients(model)

    def _begin(self, loader: Any) -> None:
        """Forget the micro-batches of a step that an earlier run did not finish; find the held-out batches."""
        self._micro_batches = []
        if self.sharpness_aware.needs_validation:
            if self.radius_dataset is None:
                raise ValueError("a learned radius needs data that is not trained on: pass radius_dataset=")
            held_out = self.get_test_dataloader(self.radius_dataset)
            size = self._train_batch_size
            self._radius_batches = Batches(held_out.dataset, held_out.collate_fn, size, self._data_seed)
        if self._order is not None:
            self._begin_order(self._order, loader)

    def _begin_order(self, order: Order, loader: Any) -> None:
        """Find the epoch that comes first, as Trainer does, and whether the last ones can be given back."""
        epochs, self._gives_back = self.state.num_train_epochs, sampler_of(loader) is order
        if not self._gives_back:
            if is_given_back(epochs - 1, epochs, self.give_back):
                log.warning("what is held out is not given back: the order of the training data is not Trainer's own")
            return
        if is_given_back(0, epochs, self.give_back) and self.sharpness_aware.needs_validation:
            raise ValueError(f"give_back={self.give_back} of {epochs} epochs is all: none is left to learn a radius in")
        steps = max(1, math.ceil(len(loader) / self.args.gradient_accumulation_steps))
        order.epoch = self.state.global_step // steps - 1  # the one before

    def _begin_epoch(self) -> None:
        """For the last epochs freeze the radius and give back what was held out: the network has seen it from then on,
        so that a training that goes on, or a second one, does not hold it out again.
        """
        if self._order is None or not self._gives_back:
            return
        self._order.epoch += 1
        saved = self.sharpness_aware.param_groups[0]
        is_last = is_given_back(self._order.epoch, self.state.num_train_epochs, self.give_back)
        self._order.given_back = saved["sam_given_back"] = bool(saved.get("sam_given_back")) or is_last
        if self._order.given_back and self.sharpness_aware.needs_validation:
            self.sharpness_aware.freeze_radius()

    def _learn(self) -> None:
        """Move a learned radius, by the training batch and as many held-out micro-batches."""
        batch, self._batch = self._batch, []
        if self.sharpness_aware.needs_validation:
            model = self.model_wrapped
            self.sharpness_aware.learn(
                lambda: self._pass(model, batch), lambda: self._pass(model, self._radius_batch(len(batch)))
            )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Trainer's, and with the training loss: rho, the norm of the last perturbation, steps skipped if any."""
        scalars = self.optimizer.param_groups[0] if "loss" in logs and self.optimizer is not None else {}
        if "sam_perturbation_norm" in scalars:
            logs |= {name: float(scalars[f"sam_{name}"]) for name in ("rho", "perturbation_norm")}
            if skipped := int(scalars["sam_skipped"]):
                logs["skipped_steps"] = skipped
        super().log(logs, start_time)

    # -------------------------------------------------------------------------------------------------- helpers

    def _create(self, base: Optimizer, total_steps: int, model: nn.Module | None = None) -> SharpnessAware:
        options = dict(self.method_options)
        if (
            total_steps
            and "total_steps" in methods.describe(self.method).required
            and not set(methods.AXES) & set(options)
        ):
            options.setdefault("total_steps", total_steps)
        return methods.create(self.method, base, model=model, **options)

    def _hold_out(self, held_out: float | int | None, give_back: float | None) -> None:
        if self.radius_dataset is None and self.train_dataset is not None:
            self.train_dataset, self.radius_dataset, order = carve(self.train_dataset, held_out, self._data_seed)
            self.give_back = GIVE_BACK if give_back is None else float(give_back)
            self._order = order if self.give_back else None
            self.held_out = {"samples": len(self.radius_dataset), "of": len(order), "seed": self._data_seed}
            log.info("%d of %d training samples are held out for the radius (seed %d)", *self.held_out.values())
        elif held_out is not None or give_back is not None:
            raise ValueError("held_out and give_back are of train_dataset: give them, or radius_dataset, not both")
        elif self.radius_dataset is not None and not (countable(self.radius_dataset) and len(self.radius_dataset)):
            raise ValueError("radius_dataset is a stream, or empty: give one whose samples have numbers")

    @property
    def _data_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _radius_batch(self, n: int) -> list[MicroBatch]:
        """n held-out micro-batches for this rank, found by the number of the step."""
        args = self.args
        first = self.state.global_step * args.gradient_accumulation_steps
        drawn = (self._radius_batches[(first + k) * args.world_size + args.process_index] for k in range(n))
        batches, num_items = self.get_batch_samples(drawn, n, args.device)
        return [(inputs, num_items, n) for inputs in batches]

    @property
    def _record(self) -> dict[str, Any]:
        """What a resumed training must have in common with the one that it goes on with."""
        options = {name: repr(value) for name, value in self.method_options.items()}
        part = {"held_out": self.held_out, "give_back": self.give_back}
        return {"method": self.method, "method_options": options} | part

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            Path(output_dir, RECORD).write_text(json.dumps(self._record), encoding="utf-8")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        file = Path(checkpoint, RECORD)
        if not file.is_file():
            log.warning("%s has no %s: it is not letsam's, the radius starts afresh", checkpoint, RECORD)
            return
        before = {"give_back": 0.0}  # what checkpoints of older versions do not have
        for key, then in (before | json.loads(file.read_text(encoding="utf-8"))).items():
            if then != (now := self._record[key]):
                raise ValueError(f"{checkpoint} was made with {key} = {then}, not {now}: make the trainer as it was")


class _Hooks(TrainerCallback):
    """Trainer's calls in between."""

    def __init__(self, trainer: SharpnessAwareMixin) -> None:
        self.trainer = trainer

    def on_train_begin(self, *_: Any, train_dataloader: Any = None, **__: Any) -> None:
        """Before the first step, and after a checkpoint has been loaded."""
        self.trainer._begin(train_dataloader)

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        """Before the first batch of an epoch, and of one that is gone on with."""
        self.trainer._begin_epoch()

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """After the step, before the schedule and before the gradients are cleared."""
        self.trainer._learn()


def _gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


class SharpnessAwareTrainer(SharpnessAwareMixin, Trainer):
    """transformers.Trainer with sharpness-aware steps; the arguments that it adds are those of SharpnessAwareMixin."""
