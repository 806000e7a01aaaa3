"""auto-sam in a plain loop: handwritten digits, 40 % of the training labels wrong, no radius to choose.

python examples/plain_loop.py [METHOD]
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import letsam
from letsam.experiments.data import digits
from letsam.experiments.models.small_cnn import small_cnn

EPOCHS = 80


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """The share of right answers, with the running statistics of BatchNorm."""
    model.eval()
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean()
    model.train()
    return float(right)


def main(method: str) -> None:
    """Train, and print the test accuracy and the radius as they go."""
    torch.set_num_threads(1)  # enough for a network of 6,138 weights
    torch.manual_seed(0)
    task = digits.task(seed=0, noise=0.4)  # the test labels are right
    whole = TensorDataset(task.train_x, task.train_y)
    train_set, val_set = letsam.split(whole)
    train_loader = DataLoader(train_set, batch_size=50, shuffle=True, drop_last=True)
    val_batches = letsam.cycle(DataLoader(val_set, batch_size=50, shuffle=True))

    model, loss_fn = small_cnn(), nn.CrossEntropyLoss()
    base = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4)
    opt = letsam.create(method, base, model=model)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS)  # of epochs: they get longer below

    for epoch in range(1, EPOCHS + 1):
        if epoch == EPOCHS * 3 // 4 and opt.needs_validation:
            opt.freeze_radius()  # the radius is found: train on what was held out, too
            train_loader = DataLoader(whole, batch_size=50, shuffle=True, drop_last=True)
        for batch, val_batch in zip(train_loader, val_batches, strict=False):
            closure = letsam.closure(model, loss_fn, batch)
            val_closure = letsam.closure(model, loss_fn, val_batch)
            opt.step(closure, val_closure if opt.needs_validation else None)
        schedule.step()
        if epoch % 10 == 0:
            test = accuracy(model, task.test_x, task.test_y)
            print(f"epoch {epoch:2}  test accuracy {test:.1%}  radius {opt.last.radius:.3g}")


if __name__ == "__main__":
    main(*sys.argv[1:2] or ["auto-sam"])
