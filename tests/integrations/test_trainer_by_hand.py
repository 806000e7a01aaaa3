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


def make(model, steps=STEPS):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, lambda t: 1 - t / steps)


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


def steps_of(data, order, accumulation):
    """The micro-batches of every step of an epoch; the last step may have fewer."""
    parts = [stacked(data, order[i : i + MICRO]) for i in range(0, len(order), MICRO)]
    return [parts[i : i + accumulation] for i in range(0, len(parts), accumulation)]


def permuted(samples, which):
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(SEED * 1_000_003 + which))
    return [samples[i] for i in order]


def by_hand(method, options, accumulation, clip, steps, held_out, frozen=None):
    model = causal().train()
    base, schedule = make(model, len(steps))
    opt = letsam.create(method, base, model=model, **options)
    losses, per_epoch = [], len(held_out) // MICRO
    for t, parts in enumerate(steps):
        if t == frozen:
            opt.freeze_radius()
        closure = closure_of(model, parts)
        losses.append(float(opt.backward(closure)))
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        base.step()
        if opt.needs_validation:
            held = []
            for i in range(t * accumulation, t * accumulation + len(parts)):
                epoch, place = divmod(i, per_epoch)
                chosen = permuted(range(len(held_out)), epoch)[place * MICRO : (place + 1) * MICRO]
                held.append(stacked(held_out, chosen))
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
    steps = steps_of(data, range(len(data)), accumulation)
    other, opt, losses = by_hand(method, options, accumulation, clip, steps, held_out)

    assert_same(model, other)
    assert torch.equal(made.sharpness_aware.param_groups[0]["sam_rho"], opt.param_groups[0]["sam_rho"])
    assert logged(made, "loss") == losses
    assert logged(made, "rho")[-1] == float(opt.param_groups[0]["sam_rho"])
    assert int(opt.param_groups[0]["sam_perturbed"]) > 0
    norms = logged(made, "grad_norm")
    assert not clip or max(norms) > clip, f"clipping has nothing to do: {norms}"
    assert isinstance(made, SharpnessAwareTrainer)


@pytest.mark.parametrize("method", ["lets-asam", "auto-sam"])
def test_what_was_held_out_is_given_back_as_in_a_loop_written_by_hand(method, tmp_path):
    """Of four epochs three go on and on through permutations of the rest, and the last one is a permutation of all."""
    data, accumulation = sentences(14), 2  # an epoch is three steps of two micro-batches, and one of one
    options = {"every": 1, "gated": False, "bounds": (1e-5, 1.0)} if method == "auto-sam" else {}
    rest, held_out = letsam.split(data, 5, SEED)
    endless = [i for which in range(5) for i in permuted(rest.indices, which)]
    orders = [*(endless[14 * epoch : 14 * (epoch + 1)] for epoch in range(3)), permuted(range(14), 3)]
    steps = [step for order in orders for step in steps_of(data, order, accumulation)]
    other, opt, losses = by_hand(method, options, accumulation, 1.0, steps, held_out, frozen=12)

    model = causal()
    more = {"gradient_accumulation_steps": accumulation, "max_grad_norm": 1.0, "data_seed": SEED, "num_train_epochs": 4}
    own = {"method_options": options, "held_out": 5, "optimizers": make(model, 16)}
    made = trainer(tmp_path, method, model, train=data, arguments_=more, **own)
    made.train()

    assert_same(model, other)
    assert logged(made, "loss") == losses
    radii = logged(made, "rho")
    assert radii[-1] == float(opt.param_groups[0]["sam_rho"])
    assert len(set(radii[:12])) == 12
    assert len(set(radii[11:])) == 1
