"""backward, step, learn: for loops that clip, schedule and step by themselves; with a checkpoint and a resume.

python examples/three_verbs.py
"""

import io

import torch
from torch import nn

import letsam

STEPS, HALF = 40, 20
LOSS = nn.CrossEntropyLoss()


class Training:
    """A model, a base optimizer and its schedule, a learned radius, and validation batches that can be resumed."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))
        self.base = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.opt = letsam.create("auto-sam", self.base, model=self.model)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.base, STEPS)
        x = torch.randn(128, 12)
        data = torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))
        self.train_set, val_set = letsam.split(data, held_out=0.25)
        self.val_batches = letsam.cycle(torch.utils.data.DataLoader(val_set, batch_size=16, shuffle=True))
        self.parts = (self.model, self.opt, self.schedule, self.val_batches)

    def step(self, t: int) -> None:
        """One step in three verbs."""
        batch = self.train_set[[(32 * t + i) % len(self.train_set) for i in range(32)]]
        closure = letsam.closure(self.model, LOSS, batch)
        val_closure = letsam.closure(self.model, LOSS, next(self.val_batches))
        self.opt.backward(closure)  # the sharpness-aware gradient is in .grad, the weights are as before
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if not self.opt.last.skipped:
            self.base.step()
        self.opt.learn(closure, val_closure)  # moves the radius, clears .grad
        self.schedule.step()


whole, first, second = Training(), Training(), Training()
for t in range(STEPS):
    whole.step(t)
for t in range(HALF):
    first.step(t)
file = io.BytesIO()
torch.save([part.state_dict() for part in first.parts], file)
file.seek(0)
for part, state in zip(second.parts, torch.load(file), strict=True):
    part.load_state_dict(state)
for t in range(HALF, STEPS):
    second.step(t)
same = all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True))
print(f"loss {second.opt.last.loss:.3f}  radius {second.opt.last.radius:.4f}  resumed equals uninterrupted: {same}")
