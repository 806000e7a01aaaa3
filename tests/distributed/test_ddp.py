"""DistributedDataParallel on two ranks equals one process on the union of their batches, and the ranks never differ."""

import pytest
import torch
import torch.distributed as dist
from spread import (
    OPTIONS,
    RHO,
    agree,
    assert_alive,
    assert_close,
    assert_radius_stayed_on_both,
    assert_skipped_on_both,
    bucketed,
    closures,
    ddp,
    fsdp2,
    make_base,
    make_model,
    make_normalised,
    poison,
    run,
    train,
)
from torch.nn.parallel import DistributedDataParallel
from two_ranks import RANKS

import letsam

TOLERANCE = 1e-12
METHODS = ["sam", "asam", "gsam", "fsam", "rsam", "gnp", "looksam", "rst", "ae-sam", "ae-looksam"]
LEARNED = ["lets-sam", "lets-asam", "auto-sam", "auto-asam", "auto-gsam"]


@pytest.mark.parametrize(
    ("name", "base"),
    [(name, "momentum") for name in METHODS + LEARNED] + [(name, "adamw") for name in ["looksam", "ae-sam", *LEARNED]],
)
def test_it_equals_one_process_and_the_ranks_are_the_same_at_every_step(world, name, base):
    first, second = world.run(run, name, ddp, base)
    expected = run(name, base=base)
    assert_alive(name, expected)
    assert_close(first, expected, TOLERANCE)
    assert all(a["loss"] != b["loss"] for a, b in zip(first, second, strict=True))
    assert agree(first, second)


@pytest.mark.parametrize("wrap", [ddp, fsdp2])
@pytest.mark.parametrize("name", ["sam", "asam"])
def test_a_matched_radius_takes_the_losses_of_all_ranks(world, name, wrap):
    options = {"radius": letsam.MatchedRadius(RHO, every=1, bounds=(1e-5, 10.0))}
    first, second = world.run(run, name, wrap, "momentum", options)
    expected = run(name, options=options)
    assert len({step["scalars"]["sam_rho"] for step in expected}) > 2
    assert_close(first, expected, TOLERANCE)
    assert agree(first, second)


@pytest.mark.parametrize("wrap", [ddp, fsdp2])
@pytest.mark.parametrize("name", ["esam", "auto-esam"])
def test_the_ranks_are_the_same_when_each_selects_its_own_samples(world, name, wrap):
    assert agree(*world.run(run, name, wrap))


def statistics(name):
    """Everything in the model after three steps at radius 0, or of the base alone."""
    net = ddp(make_normalised())
    base = make_base("momentum", net)
    opt = letsam.create(name, base, model=net, rho=0.0) if name else base
    for t in range(3):
        opt.step(closures(net, t)[0])
    return list(net.module.state_dict().values())


@pytest.mark.parametrize("name", ["sam", "gsam"])
def test_batch_norm_statistics_are_those_of_the_base_alone_on_each_rank(world, name):
    ours, alone = world.run(statistics, name), world.run(statistics, None)
    for rank in range(RANKS):
        assert all(map(torch.equal, ours[rank], alone[rank]))
    assert not all(map(torch.equal, *alone))


@pytest.mark.parametrize("name", ["gsam", "looksam", "fsam", "lets-sam", "auto-sam"])
def test_gradients_that_are_views_of_buckets_are_not_written_over(world, name):
    assert_close(world.run(run, name, bucketed)[0], run(name), TOLERANCE)


def test_the_exact_estimator_takes_the_mean_of_the_ranks(world):
    """Over ranks it is a central difference: 1e-9 is its rounding, ε/h."""
    first, second = world.run(run, "auto-sam", ddp, "momentum", {"estimator": "exact"})
    assert agree(first, second)
    assert_close(first, run("auto-sam", options={"estimator": "exact"}), 1e-9)


def told(model_given, plain):
    """A learned radius, with more or less known about the model."""
    model = make_model()
    net = ddp(model)
    given = {"wrapped": net, "bare": model, "none": None, "compiled": torch.compile(net, backend="eager")}[model_given]
    opt = letsam.create("lets-sam", make_base("momentum", net), model=given, rho=RHO, **OPTIONS["lets-sam"])
    return train(net, opt, plain=plain)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("model", ["wrapped", "bare", "none", "compiled"])
def test_the_radius_is_one_number_whatever_the_optimizer_is_told_of_the_model(world, model, plain):
    first, second = world.run(told, model, plain)
    assert agree(first, second)
    assert_close(first, run("lets-sam"), TOLERANCE)


def apart():
    """Each rank trains on its own, in a group of its own, and one of them takes more steps."""
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    rank = dist.get_rank()
    net = DistributedDataParallel(make_model(), process_group=groups[rank])
    opt = letsam.create("lets-sam", make_base("momentum", net), model=net, rho=RHO, **OPTIONS["lets-sam"])
    return train(net, opt, last=2 + rank)


def test_ranks_of_different_groups_do_not_wait_for_each_other(world):
    first, second = world.run(apart)
    assert (len(first), len(second)) == (2, 3)
    assert not agree(first, second[:2])


@pytest.mark.parametrize(
    ("name", "base", "bad"),
    [
        *[(name, "momentum", bad) for name in ("sam", "fsam", "lets-sam", "auto-sam") for bad in (1, 2)],
        *[(name, "adamw", 1) for name in ("looksam", "ae-sam")],
    ],
)
def test_a_loss_that_is_nan_on_one_rank_stops_the_step_on_both(world, name, base, bad):
    assert_skipped_on_both(world.run(poison, name, ddp, base, bad))


@pytest.mark.parametrize(("name", "bad"), [("lets-sam", 3), ("lets-sam", 4), ("auto-sam", 3)])
def test_an_upper_loss_that_is_nan_on_one_rank_leaves_the_radius_on_both(world, name, bad):
    assert_radius_stayed_on_both(world.run(poison, name, ddp, "momentum", bad), bad)
