"""Closures and data: micro-batches, autocast, sample selection, endless validation batches, splits."""

import copy
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import letsam
from pretended_graphs import pretend
from small import LOSS, assert_equal, batch, closures, create, make_model, train, weights


def gradients(model):
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("loss", [LOSS, nn.functional.cross_entropy])
@pytest.mark.parametrize("parts", [2, 3, 16, 50])
def test_micro_batches_add_up_to_the_batch(parts, loss):
    model = make_model(norm=False, dtype=torch.float64)
    data = batch(0, dtype=torch.float64)
    whole = letsam.closure(model, loss, data)()
    expected = gradients(model)
    split = letsam.closure(model, loss, data, micro_batches=parts)()
    torch.testing.assert_close(whole, split, rtol=1e-12, atol=0)
    for a, b in zip(expected, gradients(model), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("method", ["sam", "esam", "lets-asam", "auto-sam"])
def test_methods_do_not_see_micro_batches(method):
    a, b = (make_model(norm=False, dtype=torch.float64) for _ in range(2))
    train(a, create(method, a), 4)
    train(b, create(method, b), 4, micro_batches=5)
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)


def test_autocast_is_on_inside_and_the_weights_stay_float32():
    model = make_model()
    seen = []
    model.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    train(model, create("auto-sam", model), 2, autocast=torch.bfloat16)
    assert set(seen) == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}


class TrainedLoss(nn.Module):
    """A loss function with weights to train and a running mean, both part of the pass."""

    def __init__(self):
        super().__init__()
        self.classes = nn.Parameter(torch.eye(5))
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, output, y):
        loss = nn.functional.cross_entropy(output @ self.classes, y)
        if self.training:
            self.mean.lerp_(loss.detach(), 0.1)
        return loss


@pytest.mark.parametrize("way", ["scaler", "capture"])
def test_a_loss_function_may_have_weights_of_its_own(way, monkeypatch):
    def trained(**options):
        model, loss = make_model(norm=False), TrainedLoss()
        pretend(monkeypatch, model, loss)
        base = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1)
        opt = letsam.create("sam", base, model=model)
        for t in range(6):
            loss.train(t < 4)
            letsam.closure(model, loss, batch(9))()  # leaves gradients behind
            opt.step(letsam.closure(model, loss, batch(t), **options))
            if "scaler" in options:
                options["scaler"].update()
        return {**weights(model), **weights(loss)}

    options = {"scaler": {"scaler": torch.amp.GradScaler("cpu", init_scale=1024.0)}, "capture": {"capture": True}}
    torch.testing.assert_close(trained(**options[way]), trained())


class Pair(NamedTuple):
    images: torch.Tensor
    scale: torch.Tensor


class Nested(nn.Module):
    """Takes its inputs as they come from a collate function: one inside the other, and a number for all of them."""

    def __init__(self):
        super().__init__()
        self.net = make_model(norm=False, dtype=torch.float64)

    def forward(self, pair, parts):
        return self.net(pair.images * pair.scale) + self.net(parts["more"][0])


@pytest.mark.parametrize("options", [{"micro_batches": 5}, {"capture": True}])
def test_batches_may_be_nested(options, monkeypatch):
    (x, y), (more, _) = batch(0, dtype=torch.float64), batch(1, dtype=torch.float64)
    model = Nested()
    data = (Pair(x, torch.tensor(2.0, dtype=torch.float64)), {"more": [more]}, y)
    whole = letsam.closure(model, LOSS, data)()
    expected = gradients(model)
    pretend(monkeypatch, model)
    closure = letsam.closure(model, LOSS, data, **options)
    for _ in range(3):
        torch.testing.assert_close(closure(), whole, rtol=1e-12, atol=0)
        torch.testing.assert_close(gradients(model), expected, rtol=1e-10, atol=1e-14)
    assert closure.hardest(0.5) > 0


def test_dict_batches():
    class Output(dict):
        loss = property(lambda self: self["loss"])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = make_model(norm=False)

        def forward(self, x, labels):
            return Output(loss=nn.functional.cross_entropy(self.net(x), labels), logits=self.net(x))

    model = Net()
    x, y = batch(0)
    by_model = letsam.closure(model, None, {"x": x, "labels": y}, micro_batches=2)()
    by_function = letsam.closure(model, lambda out, b: LOSS(out["logits"], b["labels"]), {"x": x, "labels": y})()
    torch.testing.assert_close(by_model, by_function)


def test_esam_never_selects_an_empty_set():
    model = make_model()
    closure, _ = closures(model, 0)
    sizes = []
    model.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    opt = create("esam", model, keep=0.0)
    opt.step(closure)
    assert sizes == [16, 16, 1]


def test_esam_selects_the_samples_that_suffer_most():
    model = make_model(norm=False)
    closure, _ = closures(model, 0)
    closure()
    before = closure.losses
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(0)), alpha=0.1)
        x, y = closure.batch
        rise = LOSS(model(x), y) - before
    closure.hardest(0.25)
    chosen = rise.topk(4).indices
    expected = torch.autograd.grad(LOSS(model(x[chosen]), y[chosen]).mean(), list(model.parameters()))
    for a, b in zip(expected, gradients(model), strict=True):
        torch.testing.assert_close(a, b)


def loader(shuffle=True):
    return DataLoader(TensorDataset(torch.arange(10)), batch_size=3, shuffle=shuffle)


def numbers(batches, n):
    return [next(batches)[0].tolist() for _ in range(n)]


def test_cycle_goes_on_without_end_and_shuffles_every_epoch():
    drawn = numbers(letsam.cycle(loader()), 12)
    epochs = [[x for part in drawn[i : i + 4] for x in part] for i in (0, 4, 8)]
    assert all(sorted(e) == list(range(10)) for e in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize("at", [0, 1, 3, 4, 7])
def test_cycle_resumes(at):
    whole = letsam.cycle(loader(), seed=5)
    numbers(whole, at)
    state = copy.deepcopy(whole.state_dict())
    rest = numbers(whole, 9)
    torch.manual_seed(99)
    resumed = letsam.cycle(loader())
    resumed.load_state_dict(state)
    assert numbers(resumed, 9) == rest


def test_cycle_does_not_touch_the_global_random_state():
    torch.manual_seed(0)
    expected = torch.rand(4)
    torch.manual_seed(0)
    numbers(letsam.cycle(loader()), 9)
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize(("held_out", "count"), [(0.2, 20), (0.204, 20), (7, 7), (None, 10)])
def test_split(held_out, count):
    data = TensorDataset(torch.arange(100))
    train_part, held = letsam.split(data, held_out)
    assert len(held) == count
    assert sorted([*train_part.indices, *held.indices]) == list(range(100))
    assert letsam.split(data, held_out)[1].indices == held.indices
    assert letsam.split(data, held_out, seed=1)[1].indices != held.indices


def test_the_usual_part_is_a_tenth_and_never_more_than_500():
    assert [len(letsam.split(range(n))[1]) for n in (100, 4_990, 10_000, 1_281_167)] == [10, 499, 500, 500]


def test_ten_lines():
    """The loop of the README, on a real loader."""
    torch.manual_seed(0)
    x = torch.randn(60, 1, 6, 6)
    data, held_out = letsam.split(TensorDataset(x, (x.mean((1, 2, 3)) > 0).long()), 0.2)
    model = make_model()
    train_loader, val_loader = (DataLoader(d, 12, shuffle=True) for d in (data, held_out))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    opt = letsam.create("auto-sam", base, model=model)
    losses = []
    for _ in range(15):
        for data_batch, val_batch in zip(train_loader, letsam.cycle(val_loader), strict=False):
            closure, val_closure = (letsam.closure(model, nn.CrossEntropyLoss(), b) for b in (data_batch, val_batch))
            losses.append(opt.step(closure, val_closure=val_closure).item())
    assert sum(losses[-4:]) < 0.5 * sum(losses[:4])


def test_models_shared_between_two_optimizers_of_one_closure():
    """Two halves of a model under two optimizers: each perturbs and restores its own."""
    model, twin = make_model(), make_model()
    for m in (model, twin):
        first = letsam.create("sam", torch.optim.SGD(m[0].parameters(), lr=0.1), model=m)
        second = letsam.create("sam", torch.optim.SGD(m[5].parameters(), lr=0.1), model=m)
        for t in range(3):
            closure, _ = closures(m, t)
            first.step(closure)
            second.step(closure)
    assert_equal(model, twin)
