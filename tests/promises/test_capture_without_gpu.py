"""capture=True where there is no GPU: the eager closure, and one line in the log."""

import logging

import pytest
import torch

import letsam
from letsam import closures
from small import LOSS, assert_equal, batch, create, make_model, train


@pytest.fixture(autouse=True)
def _nothing_said_yet():
    closures._say_once.cache_clear()


@pytest.mark.parametrize("method", ["sam", "esam", "lets-sam", "auto-asam"])
@pytest.mark.parametrize(
    ("capture", "compile"), [(True, False), ("try", False), (True, True), (True, {"combo_kernels": True})]
)
def test_it_is_the_eager_closure(method, capture, compile, caplog):
    plain, captured = make_model(), make_model()
    train(plain, create(method, plain), 4)
    with caplog.at_level(logging.INFO, "letsam"):
        train(captured, create(method, captured), 4, capture=capture, compile=compile)
    assert_equal(plain, captured)
    assert [r.message for r in caplog.records] == [
        "capture=True has no effect: the model is not on a CUDA device, passes run eagerly"
    ]


def test_wrong_words():
    model = make_model()
    with pytest.raises(ValueError, match="capture is 'yes'; choose from False, True, 'try'"):
        letsam.closure(model, LOSS, batch(0), capture="yes")
    with pytest.raises(ValueError, match="pass capture=True with it, or compile the model"):
        letsam.closure(model, LOSS, batch(0), compile=True)


@pytest.mark.parametrize("method", ["sam", "gsam", "lets-asam"])
def test_an_autocast_around_the_step_does_not_hide_the_perturbation(method):
    """Autocast remembers the low-precision weights while it is on: those of θ_t would be used at θ_t + ε."""
    inside, around = make_model(), make_model()
    train(inside, create(method, inside), 5, autocast=torch.bfloat16)
    opt = create(method, around)
    for t in range(5):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            train(around, opt, 1, first=t)
    assert_equal(inside, around)
