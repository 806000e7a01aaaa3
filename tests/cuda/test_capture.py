"""Captured passes: the numbers of the eager ones, at the price of a launch. Last results: `results/cuda.json`."""

import copy
import gc
import pickle

import pytest
import torch
from torch import nn

import letsam
from letsam import tables
from letsam.capture import CaptureError
from letsam.experiments.models import COMPILE_IMAGES
from letsam.experiments.models.resnet import resnet18
from small import LOSS, METHODS, assert_equal, batch, create, learns, make_model, radius

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(autouse=True)
def deterministic():
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.deterministic = False
    torch.backends.cudnn.allow_tf32 = True


def on_gpu(index, n=16):
    return tuple(x.cuda() for x in batch(index, n))


def captures(model):
    return model.__dict__["_letsam_graphs"].captures


def train(model, opt, steps, first=0, loss_fn=LOSS, length=lambda t: 16, **options):
    for t in range(first, first + steps):
        pair = (on_gpu(2 * t + i, length(t)) for i in range(2))
        closure, val_closure = (letsam.closure(model, loss_fn, b, **options) for b in pair)
        opt.step(closure, val_closure if opt.needs_validation else None)
    return model


def both(method, steps=50, dropout=0.0, replay_rng=False, base="momentum", axes=None, **options):
    """An eager and a captured run from the same start."""
    runs = []
    for capture in (False, True):
        model = make_model(dropout=dropout).cuda()
        opt = create(method, model, base, replay_rng=replay_rng, **(axes or learns(method, every=2)))
        torch.manual_seed(7)
        train(model, opt, steps, capture=capture, **options)
        runs.append((model, opt))
    return runs


def assert_same(runs):
    (eager, opt), (captured, other) = runs
    assert captures(captured) > 0
    for (name, p), q in zip(eager.state_dict().items(), captured.state_dict().values(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-6, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")
    torch.testing.assert_close(radius(other), radius(opt), rtol=1e-6, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_the_trajectory_of_eager_passes(method):
    """Fifty steps, every tenth with a batch of another length, which is not captured."""
    runs = both(method, length=lambda t: 10 if t % 50 == 9 else 16)
    assert_same(runs)


@pytest.mark.parametrize("method", ["sam", "gsam", "esam", "lets-asam", "auto-sam"])
@pytest.mark.parametrize("options", [{"micro_batches": 3}, {"autocast": torch.bfloat16}, {"dropout": 0.5}], ids=str)
def test_micro_batches_autocast_dropout(method, options):
    """With dropout too: a replay draws the masks that an eager pass would have drawn."""
    assert_same(both(method, steps=20, **options))


@pytest.mark.parametrize("method", ["sam", "asam"])
def test_a_matched_radius(method):
    """It reads the losses of three replays of one graph: each has to be its own."""
    runs = both(method, axes={"radius": letsam.MatchedRadius(0.1, every=2, bounds=(1e-5, 10.0))})
    assert radius(runs[0][1]) != 0.1
    assert_same(runs)


@pytest.mark.parametrize("base", ["sgd", "adamw"])
def test_other_bases(base):
    assert_same(both("auto-gsam", steps=20, base=base))


def test_the_same_masks_in_both_passes_on_request():
    assert_same(both("sam", steps=20, dropout=0.5, replay_rng=True))
    for replay_rng in (True, False):
        model = nn.Sequential(nn.Dropout(0.5), make_model()).cuda()
        masks = torch.empty(40, 16, 1, 6, 6, dtype=torch.bool, device="cuda")
        count = torch.zeros((), dtype=torch.int64, device="cuda")

        def note(module, inputs, output, masks=masks, count=count):
            masks.index_copy_(0, count.reshape(1), output.detach()[None] == 0)
            count.add_(1)

        model[0].register_forward_hook(note)
        opt = create("sam", model, replay_rng=replay_rng)
        for _ in range(3):  # warm-up passes of the capture are counted too
            train(model, opt, 1, capture=True)
        count.zero_()
        train(model, opt, 4, capture=True)
        pairs = [(masks[2 * i], masks[2 * i + 1]) for i in range(4)]
        assert int(count) == 8
        assert all(torch.equal(a, b) == replay_rng for a, b in pairs)
        assert all(not torch.equal(pairs[i][0], pairs[i + 1][0]) for i in range(3))


@pytest.mark.parametrize("options", [True, {"combo_kernels": True}], ids=str)
def test_compiled(options):
    runs = both("sam", steps=10)
    model = make_model().cuda()
    opt = create("sam", model)
    train(model, opt, 10, capture=True, compile=options)
    for p, q in zip(runs[0][0].parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5)  # other kernels round differently


@pytest.mark.parametrize("options", [{}, {"compile": COMPILE_IMAGES}], ids=["captured", "compiled"])
def test_a_radius_that_does_not_move_is_sam(options):
    """In the way of the experiments: half precision, channels last, a short batch now and then, validation passes."""
    models = []
    for method, settings in (("sam", {"rho": 0.02}), ("auto-sam", {"initial": 0.02, "kappa": 0.0, "every": 3})):
        torch.manual_seed(0)
        model = resnet18(width=16).cuda().to(memory_format=torch.channels_last)
        base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=True)
        opt = letsam.create(method, base, model=model, **settings)
        for t in range(40):
            pair = (images(2 * t + i, 8 if t % 25 == 9 else 32) for i in range(2))
            closures = [letsam.closure(model, LOSS, b, autocast=torch.bfloat16, capture=True, **options) for b in pair]
            opt.step(closures[0], closures[1] if opt.needs_validation else None)
        models.append(model)
    assert_equal(*models)


def images(index, n):
    generator = torch.Generator().manual_seed(index)
    x, y = torch.randn(n, 3, 32, 32, generator=generator), torch.randint(10, (n,), generator=generator)
    return x.cuda().to(memory_format=torch.channels_last), y.cuda()


def test_a_validation_batch_of_another_length_has_its_own_graph():
    model = make_model().cuda()
    opt = create("auto-sam", model, every=1)
    for t in range(10):
        closure, val_closure = (
            letsam.closure(model, LOSS, on_gpu(2 * t + i, n), capture=True) for i, n in ((0, 16), (1, 24))
        )
        opt.step(closure, val_closure)
    assert captures(model) == 2


def test_a_rare_shape_is_never_captured():
    model = make_model().cuda()
    train(model, create("sam", model), 200, capture=True, length=lambda t: 9 if t % 50 == 49 else 16)
    assert captures(model) == 1


def test_a_loss_function_that_is_always_another_one_is_told(caplog):
    model = make_model().cuda()
    opt = create("sam", model)
    for t in range(60):
        train(model, opt, 1, first=t, loss_fn=lambda output, target: LOSS(output, target), capture=True)
    assert captures(model) == 4
    assert caplog.text.count("100 of 104 passes were not captured") == 1
    assert len(model.__dict__["_letsam_graphs"]._seen) <= 100


def test_captured_again_if_the_weights_move_to_other_memory():
    model = make_model().cuda()
    opt = create("sam", model)
    train(model, opt, 3, capture=True)
    for p in model.parameters():
        p.data = p.data.clone()
    train(model, opt, 3, first=3, capture=True)
    assert captures(model) == 2


def test_freezing_a_layer_is_seen():
    model = make_model().cuda()
    opt = create("sam", model)
    train(model, opt, 3, capture=True)
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    train(model, opt, 3, first=3, capture=True)
    assert torch.equal(before, model[0].weight)


def test_a_model_that_is_let_go_takes_its_graphs_along():
    """At once: no cycle keeps them until the garbage collector comes by. Only small tables of addresses stay."""
    gc.collect()
    gc.disable()
    try:
        before = torch.cuda.memory_allocated()
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 100_000), nn.Linear(100_000, 5)).cuda()
        opt = create("sam", model)
        train(model, opt, 3, capture=True)
        assert torch.cuda.memory_allocated() > before + 50_000_000
        del model, opt
        assert torch.cuda.memory_allocated() < before + 100_000
    finally:
        gc.enable()


def test_one_capture_after_another_leaks_nothing():
    """Nor do the libraries that keep a workspace for every stream."""
    allocated = []
    for _ in range(4):
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 64), nn.Linear(64, 5)).cuda()
        opt = create("sam", model)
        train(model, opt, 3, capture=True, autocast=torch.bfloat16)
        del model, opt
        gc.collect()
        torch.cuda.synchronize()
        allocated.append(torch.cuda.memory_allocated())
    assert allocated[-1] - allocated[1] < 100_000


def test_a_learned_radius_meets_no_new_addresses():
    """The two lists of what it carries forward change places, so that the kernels know where everything lies."""
    model = make_model().cuda()
    opt = create("auto-sam", model)
    train(model, opt, 14, capture=True)  # the radius moves in steps 0, 10 and 20
    known = len(tables._rows)
    train(model, opt, 6, first=14, capture=True)
    assert len(tables._rows) == known


def test_ten_thousand_steps_leak_nothing():
    model = make_model().cuda()
    opt = create("sam", model, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True))
    data = torch.randn(64, 16, 1, 6, 6, device="cuda")
    labels = torch.randint(0, 5, (64, 16), device="cuda")

    def steps(n):
        for t in range(n):
            opt.step(letsam.closure(model, LOSS, (data[t % 64], labels[t % 64]), capture=True))
        torch.cuda.synchronize()
        gc.collect()
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    after_some = steps(100)
    assert steps(10_000) == after_some
    assert captures(model) == 1


@pytest.mark.parametrize("method", [m for m in METHODS if "ae-" not in m])
def test_no_captured_step_waits_for_the_device(method):
    model = make_model().cuda()
    base = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    opt = create(method, model, base, **learns(method))
    pairs = [[on_gpu(2 * t + i) for i in range(2)] for t in range(9)]
    for t, pair in enumerate(pairs):
        torch.cuda.set_sync_debug_mode("error" if t > 2 else "default")
        try:
            closure, val_closure = (letsam.closure(model, LOSS, b, capture=True) for b in pair)
            opt.step(closure, val_closure if opt.needs_validation else None)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert captures(model) > 0


def test_copies_and_pickles_have_no_graphs():
    model = make_model().cuda()
    opt = create("sam", model)
    train(model, opt, 3, capture=True)
    twin, opt2 = copy.deepcopy((model, opt))
    pickle.loads(pickle.dumps(model))
    train(model, opt, 3, first=3, capture=True)
    train(twin, opt2, 3, first=3, capture=True)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)


def test_a_resumed_run_repeats_bit_for_bit():
    """Its first pass is eager again, where the other one replayed a graph."""
    model = make_model(dropout=0.5).cuda()
    opt = create("auto-gsam", model)
    torch.manual_seed(0)
    train(model, opt, 6, capture=True)
    saved = copy.deepcopy((model.state_dict(), opt.state_dict(), torch.cuda.get_rng_state()))
    train(model, opt, 6, first=6, capture=True)
    other = make_model(dropout=0.5).cuda()
    opt2 = create("auto-gsam", other)
    other.load_state_dict(saved[0])
    opt2.load_state_dict(saved[1])
    torch.cuda.set_rng_state(saved[2])
    train(other, opt2, 6, first=6, capture=True)
    assert_equal(model, other)


def test_a_batch_that_is_a_dict_and_the_exact_estimator():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = make_model()

        def forward(self, x, y):
            return self.net(x)

    runs = []
    for capture in (False, True):
        torch.manual_seed(0)
        model = Net().cuda()
        opt = create("lets-sam", model, estimator="exact")
        for t in range(8):
            batches = [dict(zip("xy", on_gpu(2 * t + i), strict=True)) for i in range(2)]
            opt.step(*(letsam.closure(model, dict_loss, b, capture=capture) for b in batches))
        runs.append((model, opt))
    assert_same(runs)


def dict_loss(output, batch):
    return LOSS(output, batch["y"])


def test_float16_with_a_scaler():
    model = make_model().cuda()
    opt = create("sam", model)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40)
    for t in range(40):
        train(model, opt, 1, first=t, autocast=torch.float16, scaler=scaler, capture=True)
        scaler.update()
    assert captures(model) == 1
    assert 0 < int(opt.param_groups[0]["sam_skipped"]) < 40
    assert all(x.isfinite().all() for x in model.state_dict().values())


def test_the_gradient_stays_where_it_is():
    model = make_model().cuda()
    opt = create("gsam", model)
    train(model, opt, 3, capture=True)
    places = [p.grad.data_ptr() for p in model.parameters()]
    train(model, opt, 3, first=3, capture=True)
    assert places == [p.grad.data_ptr() for p in model.parameters()]


@pytest.mark.parametrize("method", ["sam", "asam", "gsam", "lets-sam", "auto-sam"])
def test_extra_memory_is_what_describe_says(method):
    """Against captured plain steps, at the peak and inside a pass, in copies of the parameters."""
    torch.backends.cuda.matmul.allow_tf32 = True
    peaks = {}
    for name in ("erm", method):
        model = nn.Sequential(nn.Linear(4096, 4096, bias=False), nn.Linear(4096, 4096, bias=False)).cuda()
        opt = letsam.create(name, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True))
        x, y = torch.randn(8, 4096, device="cuda"), torch.randn(8, 4096, device="cuda")
        for t in range(6):
            if t == 4:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            closures = [letsam.closure(model, nn.functional.mse_loss, (x, y), capture=True) for _ in range(2)]
            opt.step(closures[0], closures[1] if opt.needs_validation else None)
        peaks[name] = torch.cuda.max_memory_allocated()
        size = sum(p.nbytes for p in model.parameters())
        del model, opt, closures
        gc.collect()
        torch.cuda.empty_cache()
    copies = (peaks[method] - peaks["erm"]) / size
    # Beside what lives during a pass, arithmetic between passes may hold temporary lists.
    print(f"{method}: {copies:.2f} copies at the peak")
    between = {"sam": 0, "asam": 1, "gsam": 0, "lets-sam": 2, "auto-sam": 2}
    assert copies <= letsam.describe(method).memory + between[method] + 0.05


def syncs(output, target):
    loss = LOSS(output, target)
    return loss / max(loss.max().item(), 1e-3)


def changes_shape(output, target):
    loss = LOSS(output, target)
    return loss[loss > loss.median()]


def reads_the_cpu(output, target):
    return (LOSS(output, target) * torch.arange(16.0).to(output.device)).mean()


@pytest.mark.parametrize("loss_fn", [syncs, changes_shape, reads_the_cpu])
def test_a_pass_that_cannot_be_captured_is_told_in_one_line(loss_fn, caplog):
    model = make_model().cuda()
    opt = create("sam", model)
    with pytest.raises(CaptureError, match=r"test_capture.py:[0-9]+ `.*capture='try'") as error:
        train(model, opt, 3, loss_fn=loss_fn, capture=True)
    assert "\n" not in str(error.value)
    # Nothing is left behind: the same pass runs eagerly when asked to, and others are captured.
    runs = []
    for capture in (False, "try"):
        model = make_model().cuda()
        train(model, create("sam", model), 6, loss_fn=loss_fn, capture=capture)
        runs.append(model)
    assert "passes run eagerly" in caplog.text
    for p, q in zip(runs[0].parameters(), runs[1].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)
    assert_same(both("sam", steps=5, dropout=0.5))


def test_a_batch_on_the_cpu():
    model = make_model().cuda()
    opt = create("sam", model)
    with pytest.raises(CaptureError, match="tensor 0 of the batch is on cpu and the model on cuda:0: move the batch"):
        opt.step(letsam.closure(model, LOSS, batch(0), capture=True))
