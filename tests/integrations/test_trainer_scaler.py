"""A GradScaler in Trainer: on the CPU, where accelerate makes none, one is put in; autocast is off.

Scales are powers of two, so that not one bit may be different from training without a scaler.
"""

import pytest
import torch
from accelerate.state import AcceleratorState
from accelerate.utils import AutocastKwargs

from letsam.integrations.transformers import SharpnessAwareTrainer
from tiny import assert_same, bert, logged, trainer

SETTINGS = {"gradient_accumulation_steps": 2, "max_grad_norm": 1.0, "max_steps": 5}


class Loud(SharpnessAwareTrainer):
    def compute_loss(self, *args, **more):
        return 8 * super().compute_loss(*args, **more)


def run(folder, method, monkeypatch, scale=None, kind=SharpnessAwareTrainer):
    often = {"method_options": {"every": 1}} if method == "auto-sam" else {}
    made = trainer(folder, method, bert(), kind=kind, arguments_=SETTINGS, **often)
    if scale is not None:
        monkeypatch.setitem(AcceleratorState._shared_state, "_mixed_precision", "fp16")
        made.accelerator.native_amp, made.accelerator.autocast_handler = True, AutocastKwargs(enabled=False)
        made.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)
    made.train()
    monkeypatch.undo()
    return made


@pytest.mark.parametrize("method", ["erm", "sam", "gsam", "ae-sam", "lets-sam", "auto-asam"])
def test_a_scale_changes_nothing(method, tmp_path, monkeypatch):
    plain, scaled = (run(tmp_path, method, monkeypatch, scale) for scale in (None, 2.0**12))
    assert scaled.accelerator.scaler.get_scale() == 2.0**14  # it grew, twice
    assert_same(plain.model, scaled.model)
    for name in ("loss", "grad_norm", "rho"):
        assert logged(plain, name) == logged(scaled, name)


def test_an_overflow_moves_nothing_and_the_scaler_backs_off(tmp_path, monkeypatch):
    made = run(tmp_path, "auto-sam", monkeypatch, 2.0**127, Loud)
    skipped = logged(made, "skipped_steps")[-1]
    assert 0 < skipped < SETTINGS["max_steps"]
    assert made.accelerator.scaler.get_scale() < 2.0**127
    assert all(p.isfinite().all() for p in made.model.parameters())
    assert made.lr_scheduler.last_epoch == SETTINGS["max_steps"] - skipped
    assert 0 < int(made.sharpness_aware.param_groups[0]["sam_nu_updates"]) <= SETTINGS["max_steps"] - skipped
