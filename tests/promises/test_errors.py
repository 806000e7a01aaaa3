"""Bad input gets one line that names the fix, and nothing moves."""

import numpy as np
import pytest
import torch

import letsam
from letsam import LearnedRadius, SharpnessAware
from letsam.capture import CaptureError
from small import LOSS, assert_equal, batch, closures, create, make_model, weights


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(())


BAD_CREATION = {
    "unknown method": (lambda m: letsam.create("smm", sgd(m)), ValueError, "did you mean 'sam'"),
    "lets on a method without a radius": (lambda m: letsam.create("lets-erm", sgd(m)), ValueError, "no method"),
    "unknown option": (lambda m: letsam.create("looksam", sgd(m), kk=3), TypeError, "did you mean 'k'"),
    "option of another method": (lambda m: letsam.create("sam", sgd(m), alpha=3), TypeError, "no option 'alpha'"),
    "negative radius": (lambda m: letsam.create("sam", sgd(m), rho=-0.1), ValueError, "at least 0"),
    "radius nan": (lambda m: letsam.create("sam", sgd(m), rho=float("nan")), ValueError, "a finite number"),
    "radius inf": (lambda m: letsam.create("sam", sgd(m), rho=float("inf")), ValueError, "rho is inf; give a finite"),
    "group's radius inf": (
        lambda m: letsam.create("sam", torch.optim.SGD([{"params": m.parameters(), "rho": float("inf")}], lr=0.1)),
        ValueError,
        "a group's rho is inf; give a finite number",
    ),
    "constant radius inf": (lambda m: letsam.ConstantRadius(float("inf")), ValueError, "rho is inf; give a finite"),
    "alpha nan": (lambda m: letsam.create("gsam", sgd(m), alpha=float("nan")), ValueError, "alpha is nan; give a fin"),
    "sigma nan": (lambda m: letsam.create("fsam", sgd(m), sigma=float("nan")), ValueError, "sigma is nan; give a fin"),
    "alpha inf": (lambda m: letsam.create("looksam", sgd(m), alpha=float("inf")), ValueError, "alpha is inf; give a"),
    "lambda1 inf": (
        lambda m: letsam.create("ae-sam", sgd(m), total_steps=9, lambda1=float("inf")),
        ValueError,
        "lambda1 is inf; give a finite number",
    ),
    "radius as text": (lambda m: letsam.create("sam", sgd(m), rho="0.1"), TypeError, "rho is '0.1'; give a number"),
    "alpha as text": (lambda m: letsam.create("gsam", sgd(m), alpha="x"), TypeError, "alpha is 'x'; give a number"),
    "beta": (lambda m: letsam.create("lets-sam", sgd(m), betas=0.9), TypeError, "betas is 0.9; give two numbers"),
    "bound": (lambda m: letsam.create("lets-sam", sgd(m), bounds=(0.1, "x")), TypeError, "is 'x'; give a number"),
    "learned radius at zero": (lambda m: letsam.create("lets-sam", sgd(m), rho=0.0), ValueError, "positive"),
    "a radius that nobody sets": (
        lambda m: letsam.create("auto-sam", sgd(m), rho=0.1),
        ValueError,
        "auto-sam has no rho to set and learns its radius",
    ),
    "rho and radius": (lambda m: letsam.create("sam", sgd(m), rho=1, radius=LearnedRadius()), ValueError, "not both"),
    "rho where there is none": (lambda m: letsam.create("erm", sgd(m), rho=0.1), ValueError, "has no rho"),
    "no total_steps": (lambda m: letsam.create("ae-sam", sgd(m)), ValueError, "needs total_steps="),
    "not an optimizer": (lambda m: letsam.create("sam", m), TypeError, "give a torch optimizer"),
    "no name": (lambda m: letsam.create(None, sgd(m)), TypeError, "the method is None; give a name, one of"),
    "none": (lambda m: letsam.create("sam", None), TypeError, "base is a NoneType; give a torch optimizer"),
    "own passes": (lambda m: letsam.create("sam", torch.optim.LBFGS(m.parameters())), TypeError, "LBFGS, which makes"),
    "class, not optimizer": (lambda m: SharpnessAware(torch.optim.SGD), TypeError, "give a torch optimizer"),
    "wrapped twice": (lambda m: SharpnessAware(letsam.create("sam", sgd(m))), TypeError, "already"),
    "probability": (lambda m: letsam.create("rst", sgd(m), p=1.5), ValueError, "between 0 and 1"),
    "k": (lambda m: letsam.create("looksam", sgd(m), k=0), ValueError, "at least 1"),
    "half a step": (lambda m: letsam.create("looksam", sgd(m), k=2.5), TypeError, "k is 2.5; give a whole number"),
    "half an update": (lambda m: letsam.create("auto-sam", sgd(m), every=2.5), TypeError, "every is 2.5; give a whole"),
    "no update": (lambda m: letsam.create("auto-sam", sgd(m), every=float("inf")), TypeError, "every is inf; give a"),
    "half a training": (
        lambda m: letsam.create("ae-sam", sgd(m), total_steps=2.5),
        TypeError,
        "total_steps is 2.5; give a whole number",
    ),
    "half a schedule": (
        lambda m: letsam.create("le-sam", sgd(m), total_steps=2.5),
        TypeError,
        "total_steps is 2.5; give a whole number",
    ),
    "perhaps": (
        lambda m: letsam.create("asam", sgd(m), filterwise="maybe"),
        TypeError,
        "filterwise is 'maybe'; give True or False",
    ),
    "gated perhaps": (lambda m: letsam.create("auto-sam", sgd(m), gated="no"), TypeError, "gated is 'no'; give True"),
    "capped perhaps": (
        lambda m: letsam.create("auto-sam", sgd(m), capped="no"),
        TypeError,
        "capped is 'no'; give True",
    ),
    "replay perhaps": (lambda m: letsam.create("sam", sgd(m), replay_rng="no"), TypeError, "is 'no'; give True or F"),
    "estimator": (lambda m: letsam.create("lets-sam", sgd(m), estimator="x"), ValueError, "choose from algorithm1"),
    "objective": (lambda m: letsam.create("lets-sam", sgd(m), objective="x"), ValueError, "choose from squared-gap"),
    "rule": (lambda m: letsam.create("lets-sam", sgd(m), rule="x"), ValueError, "choose from adam"),
    "bounds": (lambda m: letsam.create("auto-sam", sgd(m), bounds=(0.5, 1.0)), ValueError, "between 0.5 and 1"),
    "finite difference of different samples": (
        lambda m: letsam.create("auto-esam", sgd(m), keep=0.5),
        ValueError,
        "use estimator='exact'",
    ),
    "keep": (lambda m: letsam.create("esam", sgd(m), keep=2.0), ValueError, "between 0 and 1"),
    "group's radius": (
        lambda m: letsam.create("sam", torch.optim.SGD([{"params": m.parameters(), "rho": -1.0}], lr=0.1)),
        ValueError,
        "at least 0",
    ),
    "radius": (lambda m: SharpnessAware(sgd(m), radius="0.1"), TypeError, "give a number or a radius such as"),
    "what the cosine does not read": (
        lambda m: letsam.create("auto-sam", sgd(m), lr=1e9),
        ValueError,
        "auto-sam does not read lr: drop it, or use rule='adam' with it",
    ),
    "what Adam does not read": (
        lambda m: letsam.create("lets-sam", sgd(m), kappa=99),
        ValueError,
        "lets-sam does not read kappa: drop it, or use rule='cosine' with it",
    ),
    "describe": (lambda m: letsam.describe("asma"), ValueError, "did you mean 'asam'"),
    "batch": (lambda m: letsam.closure(m, LOSS, batch(0)[0]), TypeError, "give .inputs, targets."),
    "no loss function": (lambda m: letsam.closure(m, None, batch(0)), TypeError, "loss_fn is None"),
    "micro-batches": (lambda m: letsam.closure(m, LOSS, batch(0), micro_batches=0), ValueError, "at least 1"),
    "half a micro-batch": (
        lambda m: letsam.closure(m, LOSS, batch(0), micro_batches=2.5),
        TypeError,
        "micro_batches is 2.5; give a whole number",
    ),
    "split": (lambda m: letsam.split(range(10), 0.001), ValueError, "empty part"),
    "split of few": (lambda m: letsam.split(range(3)), ValueError, "a tenth leaves an empty part .* from 1 to 2"),
    "split of one": (lambda m: letsam.split(range(1)), ValueError, "the dataset has 1 samples; give at least 2"),
    "split of a stream": (lambda m: letsam.split(Stream()), TypeError, "a Stream has no length to split; keep some"),
    "split count": (lambda m: letsam.split(range(10), 10), ValueError, "between 1 and 9"),
    "cycle": (lambda m: next(letsam.cycle([])), ValueError, "at least one"),
}


@pytest.mark.parametrize("case", BAD_CREATION)
def test_creation(case):
    make, kind, message = BAD_CREATION[case]
    with pytest.raises(kind, match=message) as caught:
        make(make_model())
    assert "\n" not in str(caught.value)


def test_a_learned_method_takes_the_other_rule():
    opt = letsam.create("auto-sam", sgd(make_model()), rule="adam", gated=False, shift=0.0, lr=0.1)
    assert opt.radius.lr == 0.1


def no_gradient(model):
    x, y = batch(0)
    return lambda: LOSS(model(x), y).mean()


def no_loss(model):
    closure, _ = closures(model, 0)
    return lambda: closure() and None


BAD_STEPS = {
    "no gradient": ("sam", lambda m: (no_gradient(m), None), RuntimeError, "call loss.backward"),
    "no loss": ("sam", lambda m: (no_loss(m), None), RuntimeError, "return loss"),
    "many losses": ("sam", lambda m: (lambda: [next(closures(m, 0))(), 1.0], None), RuntimeError, "return the mean"),
    "no validation": ("lets-sam", lambda m: (next(closures(m, 0)), None), ValueError, "val_closure="),
    "validation that returns no loss": (
        "auto-sam",
        lambda m: (next(closures(m, 0)), no_loss(m)),
        RuntimeError,
        "return",
    ),
    "not a function": ("sam", lambda m: (3, None), TypeError, "give a function"),
    "esam on a plain function": ("esam", lambda m: (lambda: next(closures(m, 0))(), None), TypeError, "letsam.closure"),
    "esam on a mean": (
        "esam",
        lambda m: (letsam.closure(m, torch.nn.functional.cross_entropy, batch(0)), None),
        TypeError,
        "reduction='none'",
    ),
    "esam on several losses of a sample": (
        "esam",
        lambda m: (letsam.closure(m, lambda o, t: o.square(), batch(0)), None),
        TypeError,
        "one loss for each sample: .*, and if that has more dimensions, its means",
    ),
    "empty batch": ("sam", lambda m: (letsam.closure(m, LOSS, batch(0, n=0)), None), ValueError, "has no samples"),
    "loss is no tensor": ("sam", lambda m: (letsam.closure(m, lambda o, t: 1.0, batch(0)), None), TypeError, "tensor"),
}


@pytest.mark.parametrize("case", BAD_STEPS)
def test_step(case):
    method, make, kind, message = BAD_STEPS[case]
    model = make_model()
    opt = create(method, model)
    closure, val_closure = make(model)
    before = weights(model)
    with pytest.raises(kind, match=message) as caught:
        opt.step(closure, val_closure)
    assert "\n" not in str(caught.value)
    if val_closure is None:
        assert_equal(before, model)


def test_a_place_that_the_loader_does_not_have():
    batches = letsam.cycle(range(4))
    batches.load_state_dict({"seed": 0, "epoch": 1, "position": 6})
    for _ in range(2):
        with pytest.raises(ValueError, match="6 batches of the epoch were drawn, and the loader has 4: load it with"):
            next(batches)


@pytest.mark.parametrize("radius", [0.0, letsam.ScheduledRadius(0.0, 0.1, 10, shape="linear")])
def test_a_groups_rho_relative_to_nothing(radius):
    model = make_model()
    groups = [{"params": model[0].parameters(), "rho": 0.1}, {"params": model[5].parameters()}]
    opt = SharpnessAware(torch.optim.SGD(groups, lr=0.1), model=model, radius=radius)
    before = weights(model)
    with pytest.raises(ValueError, match="relative to the common radius, which is 0: give one above 0"):
        opt.step(next(closures(model, 0)))
    assert_equal(before, model)


def test_what_is_not_called_before_the_weights_moved_is_checked_before():
    model = make_model()
    opt, before = create("auto-sam", model), weights(model)
    with pytest.raises(TypeError, match="val_closure is a tuple; give a function"):
        opt.step(next(closures(model, 0)), batch(1))
    assert_equal(before, model)


@pytest.mark.parametrize("number", [1, np.float32(0.1), torch.tensor(0.1)])
def test_a_radius_is_any_number(number):
    model = make_model()
    opt = SharpnessAware(sgd(model), model=model, radius=number)
    opt.step(next(closures(model, 0)))
    assert opt.last.radius == pytest.approx(float(number))


def test_an_array_in_a_captured_batch(monkeypatch):
    monkeypatch.setattr(letsam.closures, "_on_gpu", lambda _: True)
    model, (x, y) = make_model(), batch(0)
    closure = letsam.closure(model, LOSS, (x, np.arange(16), y), capture=True)
    with pytest.raises(
        CaptureError, match="the batch holds a ndarray, which a graph cannot read anew: make it a tensor"
    ):
        closure()


def test_sparse_gradients():
    model = torch.nn.Embedding(5, 3, sparse=True)
    opt = letsam.create("sam", torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    x = torch.tensor([0, 1])
    with pytest.raises(RuntimeError, match="sparse=False"):
        opt.step(letsam.closure(model, lambda o, t: o.sum(1), (x, x)))
