"""FSDP2 and tensor parallelism on two ranks equal one process; uneven and empty shards included."""

import pytest
import torch
from spread import (
    agree,
    alone,
    assert_alive,
    assert_close,
    assert_radius_stayed_on_both,
    assert_skipped_on_both,
    closures,
    create,
    fsdp2,
    look,
    make_model,
    make_transposed,
    poison,
    run,
    spoilt,
    start,
    train,
)
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from two_ranks import RANKS

import oracle

METHODS = ["sam", "asam", "gsam", "fsam", "rsam", "gnp", "looksam", "rst", "ae-sam"]
LEARNED = ["lets-sam", "lets-asam", "auto-sam", "auto-asam", "auto-looksam"]
TOLERANCE = 1e-12


def shapes():
    net, _ = start("sam", fsdp2)
    return [tuple(net.conv[i].weight.to_local().shape) for i in (0, 2)]


def test_the_problem_has_uneven_and_empty_shards(world):
    assert world.run(shapes) == [[(2, 1, 2, 2), (1, 3, 2, 2)], [(1, 1, 2, 2), (0, 3, 2, 2)]]


def equals_one_process(world, name, base="momentum", tolerance=TOLERANCE, **options):
    first, second = world.run(run, name, fsdp2, base, options)
    expected = run(name, alone, base, options)
    assert_alive(name, expected)
    assert_close(first, expected, tolerance)
    assert agree(first, second)


@pytest.mark.parametrize("name", METHODS + LEARNED)
def test_it_equals_one_process(world, name):
    equals_one_process(world, name)


@pytest.mark.parametrize("name", METHODS + LEARNED)
def test_it_equals_one_process_in_single_precision(world, name):
    equals_one_process(world, name, tolerance=1e-6, dtype=torch.float32)


@pytest.mark.parametrize("name", ["fsam", "looksam", "lets-sam", "auto-sam"])
def test_it_equals_one_process_with_adamw(world, name):
    equals_one_process(world, name, "adamw")


def test_filters_that_run_across_the_shards_have_their_whole_norm(world):
    equals_one_process(world, "asam", make=make_transposed)


def test_the_exact_estimator_equals_one_process(world):
    """Over ranks it is a central difference: 1e-9 is its rounding, ε/h."""
    equals_one_process(world, "auto-sam", tolerance=1e-9, estimator="exact")


@pytest.mark.parametrize(("name", "bad"), [("sam", 1), ("sam", 2), ("fsam", 1), ("looksam", 1), ("auto-sam", 2)])
def test_a_loss_that_is_nan_on_one_rank_stops_the_step_on_both(world, name, bad):
    assert_skipped_on_both(world.run(poison, name, fsdp2, "momentum", bad))


@pytest.mark.parametrize(("name", "bad"), [("lets-sam", 3), ("auto-sam", 3)])
def test_an_upper_loss_that_is_nan_on_one_rank_leaves_the_radius_on_both(world, name, bad):
    assert_radius_stayed_on_both(world.run(poison, name, fsdp2, "momentum", bad), bad)


def stumble(name, fused):
    """The first step fails on one rank; the base is told so on the device if it is fused."""
    net = fsdp2(make_model())
    opt = create(name, torch.optim.AdamW(net.parameters(), lr=5e-3, fused=fused), net)
    opt.step(*spoilt(closures(net, 0), bad=1))
    return [look(opt), *train(net, opt, 1)]


@pytest.mark.parametrize("name", ["sam", "looksam", "fsam", "auto-sam"])
def test_a_fused_base_skips_as_any_other(world, name):
    first, second = world.run(stumble, name, True)
    assert first[0]["skipped"]
    assert agree(first, second)
    assert_close(first, world.run(stumble, name, False)[0], TOLERANCE)


def interrupt():
    """A closure that fails in the perturbed pass, between forward and backward; the output before and after."""
    net, opt = start("sam", fsdp2)
    train(net, opt, 0, 1)
    closure, _ = closures(net, 1)
    inputs, _ = closure.batch
    expected, weights, calls = net(inputs).detach().clone(), look(opt)["weights"], 0

    def failing():
        nonlocal calls
        calls += 1
        if calls == 2:
            net(inputs)
            raise KeyError
        return closure()

    with pytest.raises(KeyError):
        opt.step(failing)
    return all(map(torch.equal, look(opt)["weights"], weights)), torch.equal(net(inputs), expected)


def test_no_gathered_copy_of_the_perturbed_weights_outlives_a_failed_pass(world):
    assert world.run(interrupt) == [(True, True)] * RANKS


def tensor_parallel(name, split):
    """Every placement at once: split by rows, by columns, on all ranks, and not a DTensor; LayerNorm's gradients are
    sums still to be done."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(25, 6), nn.Tanh(), nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 4)
    ).double()
    if split:
        plan = {
            "1": ColwiseParallel(),
            "3": RowwiseParallel(output_layouts=Shard(0)),
            "4": SequenceParallel(sequence_dim=0),
            "5": ColwiseParallel(input_layouts=Shard(0), output_layouts=Replicate()),
        }
        parallelize_module(net, init_device_mesh("cpu", (RANKS,)), plan)
    opt = create(name, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), net)
    trace = []
    for data in oracle.make_data(4):
        opt.step(*oracle.closures(net, data))
        trace.append(look(opt))
    return trace


@pytest.mark.parametrize("name", ["sam", "gsam", "auto-sam"])
def test_tensor_parallelism_equals_one_process(world, name):
    first, second = world.run(tensor_parallel, name, True)
    assert_close(first, tensor_parallel(name, False), TOLERANCE)
    assert agree(first, second)
