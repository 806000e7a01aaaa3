"""A surface that takes its time: python killed.py FOLDER SECONDS, to be killed while it runs."""

import sys
import time

import torch

from letsam.measure import Objective, Surface, directions, surface
from small import LOSS, batch, make_model

X = [-0.5, 0.0, 0.25, 0.5]
Y = [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5]


def measure(folder, seconds=0.0):
    torch.set_num_threads(1)
    model = make_model(dropout=0.2)
    trained = Objective(model, LOSS, [batch(0), batch(1)], training=True)
    evaluated = Objective(model, LOSS, [batch(2)])

    def slow():
        time.sleep(seconds)
        return trained.loss()

    return surface(model, {"train": slow, "test": evaluated.loss}, directions(model, seed=5), (X, Y), folder)


if __name__ == "__main__":
    found = measure(sys.argv[1], float(sys.argv[2]))
    assert isinstance(found, Surface)
    print("finished")
