"""A small table on digits and three figures of it, trained by the real command."""

import os
import sys
from pathlib import Path

import pytest

from letsam.cli import main

TABLE = """
title = "Digits"
source = "a test"
seeds = [0, 1]
[train]
data = "digits"
model = "small-cnn"
epochs = 4
batch = 40
lr = 0.03
images = 120
augment = false
precision = "float32"
[columns]
plain = { }
[rows]
erm = { method = "erm" }
sam = { method = "sam", rho = 0.05 }
lets-sam = { method = "lets-sam", rho = 0.05 }
"""
FIGURE = """
title = "Some figure"
source = "a test"
seeds = [0]
figure = "{kind}"
tables = ["small"]
columns = ["plain"]
rows = ["erm", "sam", "lets-sam"]
"""
KINDS = ("convergence", "generalization-gap", "loss-landscape")
COMMAND = [sys.executable, "-m", "letsam"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def write_recipes(folder: Path) -> None:
    """The recipes, each named after what it is."""
    for name, text in {"small": TABLE, **{kind: FIGURE.format(kind=kind) for kind in KINDS}}.items():
        (folder / "recipes" / name).mkdir(parents=True)
        (folder / "recipes" / name / "recipe.toml").write_text(text)
    (folder / "recipes" / "small" / "paper.toml").write_text("[sam]\nplain = [90.0, 0.5]\n")


def commands_in(folder: Path, *commands: list[str]) -> Path:
    """The recipes in a new folder, and what these commands make of them."""
    write_recipes(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in commands:
            assert main(command) == 0
    return folder
