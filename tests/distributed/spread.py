"""One small training run, alone or spread over the ranks. In a rank, each gets its share of every batch."""

from itertools import starmap

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from two_ranks import RANKS

import letsam
import oracle

RHO = 0.1
STEPS = 6
OPTIONS = {
    "looksam": {"k": 3},
    "ae-sam": {"total_steps": STEPS, "lambda1": 0.5},
    "ae-looksam": {"total_steps": STEPS, "lambda1": 0.5},
    "lets-sam": {"lr": 0.05},  # the printed rate moves a radius too little to be seen in a few steps
    "lets-asam": {"lr": 0.05},
}
BOTH_BRANCHES = ("looksam", "rst", "ae-sam")


def make_model(seed=0):
    """Filters that do not divide by two: 3 make uneven shards, 1 leaves a rank with an empty one."""
    torch.manual_seed(seed)
    conv = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Tanh(), nn.Conv2d(3, 1, 2))
    return oracle.make_model(seed, conv=conv, width=9)


def make_transposed(seed=0):
    """Filters are counted by the second dimension here, and the first one is split."""
    torch.manual_seed(seed)
    conv = nn.Sequential(nn.ConvTranspose2d(1, 3, 2), nn.Tanh(), nn.ConvTranspose2d(3, 2, 1))
    return oracle.make_model(seed, conv=conv, width=72)


def make_normalised(seed=0):
    torch.manual_seed(seed)
    conv = nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.Tanh(), nn.Conv2d(3, 1, 2))
    return oracle.make_model(seed, conv=conv, width=9)


def alone(model):
    return model


def ddp(model):
    return DistributedDataParallel(model)


def bucketed(model):
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def fsdp2(model):
    for part in (model.conv, model.hidden):
        fully_shard(part)
    return fully_shard(model)


def start(name, wrap=alone, base="momentum", seed=0, dtype=torch.float64, make=make_model, **options):
    """A fresh model and optimizer."""
    net = wrap(make(seed).to(dtype))
    return net, create(name, make_base(base, net), net, **options)


def create(name, base, net, **options):
    """A method from the radius RHO on; auto-* moves its own at every step, wherever it wants to go."""
    free = {"initial": RHO, "bounds": (1e-5, 10.0), "every": 1}
    first = free if name.startswith("auto-") else {} if "radius" in options else {"rho": RHO}
    return letsam.create(name, base, model=net, **(first | OPTIONS.get(name, {}) | options))


def make_base(name, net):
    return oracle.make_base(name, getattr(net, "module", net))


def share(batch):
    return tuple(x.chunk(RANKS)[dist.get_rank()] for x in batch) if dist.is_initialized() else batch


def closures(net, t, plain=False):
    """The training and the validation closure of step t."""
    dtype = next(net.parameters()).dtype
    return oracle.closures(net, [share((x.to(dtype), y)) for x, y in DATA[t]], plain)


def train(net, opt, first=0, last=STEPS, plain=False):
    """Take steps; what there is to see after each of them."""
    trace = []
    for t in range(first, last):
        opt.step(*closures(net, t, plain))
        trace.append(look(opt))
    return trace


def look(opt):
    """Whole weights, the scalars of the state, and what the last step says of itself."""
    weights = [whole(p.detach()).clone() for group in opt.param_groups for p in group["params"]]
    scalars = {key: float(value) for key, value in opt.param_groups[0].items() if key.startswith("sam_")}
    last = {name: getattr(opt.last, name) for name in ("perturbed", "skipped", "loss")}
    return {"weights": weights, "scalars": scalars, **last}


def whole(x):
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def run(name, wrap=alone, base="momentum", options=None):
    return train(*start(name, wrap, base, **(options or {})))


def poison(name, wrap, base, bad):
    """A step whose `bad`-th pass returns NaN on rank 1 alone, its gradients finite, between two good steps."""
    net, opt = start(name, wrap, base)
    train(net, opt, 0, 1)
    before, state = look(opt), tensors(opt)
    opt.step(*spoilt(closures(net, 1), bad))
    stayed = all(map(torch.equal, tensors(opt), state)) and unchanged(before, look(opt))
    return before, look(opt), stayed, opt.last.passes, train(net, opt, 2, 3)


def spoilt(closures, bad):
    """Closures that count their passes together, and return NaN for a loss in one of them, on rank 1."""
    passes = 0

    def spoil(closure):
        def function():
            nonlocal passes
            passes += 1
            return closure() * (float("nan") if passes == bad and dist.get_rank() == 1 else 1.0)

        return function

    return map(spoil, closures)


def tensors(opt):
    return [whole(x).clone() for state in opt.state.values() for x in state.values()]


def unchanged(before, after):
    """Whether all scalars but the counters are what they were."""
    counters = ("sam_step", "sam_perturbed", "sam_memories", "skipped")
    return all(after["scalars"][key] == x for key, x in before["scalars"].items() if not key.endswith(counters))


def assert_skipped_on_both(answers):
    for before, after, stayed, _, _ in answers:
        assert stayed
        assert after["skipped"]
        assert all(map(torch.equal, before["weights"], after["weights"]))
        assert after["scalars"]["sam_step"] == before["scalars"]["sam_step"] + 1
        assert after["scalars"]["sam_skipped"] == before["scalars"]["sam_skipped"] + 1
    (_, after, *_, later), (*_, elsewhere) = answers
    assert agree(later, elsewhere)
    assert not torch.equal(after["weights"][0], later[0]["weights"][0])


def assert_radius_stayed_on_both(answers, bad):
    for before, after, _, passes, _ in answers:
        assert passes >= bad
        assert unchanged(before, after)
        assert not after["skipped"]
        assert not torch.equal(before["weights"][0], after["weights"][0])


def agree(a, b):
    """Whether two traces are the same bit for bit, but for the loss, which each rank has its own of."""
    return len(a) == len(b) and all(starmap(same, zip(a, b, strict=True)))


def same(a, b):
    equal = all(starmap(torch.equal, zip(a["weights"], b["weights"], strict=True)))
    return equal and a["scalars"] == b["scalars"] and a["perturbed"] == b["perturbed"]


def assert_close(trace, expected, tolerance):
    for t, (ours, theirs) in enumerate(zip(trace, expected, strict=True)):
        assert ours["perturbed"] == theirs["perturbed"], f"step {t}"
        errors = [(x - y).abs().max().item() for x, y in zip(ours["weights"], theirs["weights"], strict=True)]
        assert all(error <= tolerance for error in errors), f"step {t}: weights differ by {errors}"
        for key, value in theirs["scalars"].items():
            assert abs(ours["scalars"][key] - value) <= tolerance * max(1, abs(value)), f"step {t}: {key}"


def assert_alive(name, trace):
    """The run exercised what it should: weights move, policies take both branches, a learned radius moves."""
    assert not torch.equal(trace[0]["weights"][0], trace[-1]["weights"][0])
    assert {step["perturbed"] for step in trace} == ({True, False} if name.endswith(BOTH_BRANCHES) else {True})
    radii = {step["scalars"]["sam_rho"] for step in trace}
    assert (len(radii) > 1) == name.startswith(("lets", "auto"))


DATA = oracle.make_data(2 * STEPS)
