"""Trainer against a loop written by hand: not one bit apart, in fp32.

The loop knows nothing of the trainer: tokens of all micro-batches share one normalisation, the three verbs of letsam,
torch's clipping of the final gradient alone, a schedule.
"""

import pytest
import torch
from torch import nn

import letsam
from letsam.integrations.transformers import SharpnessAwareTrainer
from tiny import METHODS, assert_same, causal, logged, sentences, trainer

STEPS, MICRO, SEED = 4, 2, 3


def make(model):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, lambda t: 1 - t / STEPS)


def closure_of(model, parts):
    """Cross-entropy a token over all parts; the parts' gradients add up."""
    tokens = sum(int((part["labels"][:, 1:] != -100).sum()) for part in parts)

    def closure():
        total = 0
        model.zero_grad()
        for part in parts:
            logits = model(input_ids=part["input_ids"]).logits.flatten(0, 1)
            following = nn.functional.pad(part["labels"][:, 1:], (0, 1), value=-100).flatten()
            loss = nn.functional.cross_entropy(logits, following, reduction="sum") / tokens
            loss.backward()
            total = total + loss.detach()
        return total

    return closure


def stacked(data, chosen):
    return {key: torch.stack([data[int(i)][key] for i in chosen]) for key in ("input_ids", "labels")}


def by_hand(method, options, accumulation, clip, data, held_out):
    model = causal().train()
    base, schedule = make(model)
    opt = letsam.create(method, base, model=model, **options)
    losses = []
    order, per_epoch = iter(range(len(data))), len(held_out) // MICRO
    for t in range(STEPS):
        parts = [stacked(data, [next(order) for _ in range(MICRO)]) for _ in range(accumulation)]
        closure = closure_of(model, parts)
        losses.append(float(opt.backward(closure)))
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        base.step()
        if opt.needs_validation:
            held = []
            for i in range(t * accumulation, (t + 1) * accumulation):
                epoch, place = divmod(i, per_epoch)
                seed = torch.Generator().manual_seed(SEED * 1_000_003 + epoch)
                shuffled = torch.randperm(len(held_out), generator=seed)
                held.append(stacked(held_out, shuffled[place * MICRO : (place + 1) * MICRO]))
            opt.learn(closure, closure_of(model, held))
        schedule.step()
    return model, opt, losses


@pytest.mark.parametrize("clip", [0.0, 1.0])
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("method", METHODS)
def test_trainer_is_the_loop_written_by_hand(method, accumulation, clip, tmp_path):
    data, held_out = sentences(STEPS * MICRO * accumulation), sentences(7, seed=1)
    options = {"total_steps": STEPS} if method == "ae-sam" else {"k": 2} if method == "looksam" else {}
    learned = {"radius_dataset": held_out} if method in ("lets-sam", "auto-sam") else {}
    model = causal()
    made = trainer(
        tmp_path,
        method,
        model,
        train=data,
        optimizers=make(model),
        method_options={k: v for k, v in options.items() if k != "total_steps"},  # the trainer knows it
        arguments_={
            "gradient_accumulation_steps": accumulation,
            "max_grad_norm": clip,
            "train_sampling_strategy": "sequential",
            "data_seed": SEED,
        },
        **learned,
    )
    made.train()
    other, opt, losses = by_hand(method, options, accumulation, clip, data, held_out)

    assert_same(model, other)
    assert torch.equal(made.sharpness_aware.param_groups[0]["sam_rho"], opt.param_groups[0]["sam_rho"])
    assert logged(made, "loss") == losses
    assert logged(made, "rho")[-1] == float(opt.param_groups[0]["sam_rho"])
    assert int(opt.param_groups[0]["sam_perturbed"]) > 0
    norms = logged(made, "grad_norm")
    assert not clip or max(norms) > clip, f"clipping has nothing to do: {norms}"
    assert isinstance(made, SharpnessAwareTrainer)
