"""The Python blocks of README.md and docs/methods run as they are printed.

All blocks of a page run one after the other in one namespace, which starts with the prelude below: what a reader is
expected to have already. Line numbers in a traceback are those of the page.

    torch, nn, letsam      the imports
    model                  a small CNN with BatchNorm for 1×8×8 images, 4 classes
    loss_fn                the mean cross-entropy
    dataset, train_set     48 random images with labels
    train_loader           batches of 16 of them
    val_loader             batches of 16 of 32 others
"""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import letsam

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def images(n):
    return TensorDataset(torch.randn(n, 1, 8, 8), torch.randint(0, 4, (n,)))


def prelude():
    torch.manual_seed(0)
    convolution = [nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(4)]
    data = images(48)
    return {
        "torch": torch,
        "nn": nn,
        "letsam": letsam,
        "model": nn.Sequential(*convolution, nn.Flatten(), nn.Linear(16, 4)),
        "loss_fn": nn.CrossEntropyLoss(),
        "dataset": data,
        "train_set": data,
        "train_loader": DataLoader(data, batch_size=16, shuffle=True),
        "val_loader": DataLoader(images(32), batch_size=16, shuffle=True),
    }


def blocks(page):
    """Every block with empty lines before it, so that line n of the code is line n of the page."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text[: block.start(1)].count("\n") + block[1] for block in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = prelude()
    before = [p.detach().clone() for p in namespace["model"].parameters()]
    for code in blocks(page):
        exec(compile(code, str(page), "exec"), namespace)
    after = namespace["model"].parameters()
    assert any(not torch.equal(x, y) for x, y in zip(before, after, strict=True)), "the code trained nothing"
