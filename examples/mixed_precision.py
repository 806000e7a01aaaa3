"""Autocast, a GradScaler and micro-batches: all three live in the closure, the loop stays the same.

python examples/mixed_precision.py
"""

import torch
from torch import nn

import letsam

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, BATCH, MICRO_BATCHES = 60, 64, 4


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Points, and on which side of a plane they lie."""
    x = torch.randn(BATCH, 20, device=DEVICE)
    return x, (x[:, :10].sum(1) > 0).long()


def main() -> None:
    """Train in float16 with a learned radius, and print what the steps reported."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2)).to(DEVICE)
    loss_fn = nn.CrossEntropyLoss()
    base = torch.optim.AdamW(model.parameters(), lr=3e-3)
    opt = letsam.create("auto-sam", base, model=model)
    # The scale starts too large on purpose: the first steps overflow, are skipped, and the scaler backs off.
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**24)
    precision = {"autocast": torch.float16, "scaler": scaler, "micro_batches": MICRO_BATCHES}

    skipped = 0
    for step in range(1, STEPS + 1):
        closure = letsam.closure(model, loss_fn, batch(), **precision)
        val_closure = letsam.closure(model, loss_fn, batch(), **precision)
        opt.step(closure, val_closure)  # unscales, skips a step that overflowed, tells the scaler
        scaler.update()
        skipped += opt.last.skipped
        if step % 20 == 0:
            last, scale = opt.last, scaler.get_scale()
            print(f"step {step}  loss {last.loss:.3f}  radius {last.radius:.4f}  scale {scale:g}  skipped {skipped}")


if __name__ == "__main__":
    main()
