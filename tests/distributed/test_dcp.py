"""torch.distributed.checkpoint: resuming from one equals never having stopped, bit for bit.

A checkpoint is loaded into another model and an optimizer that never stepped, as a restarted job would do it.
"""

import pytest
import torch
import torch.distributed.checkpoint as dcp
from spread import (
    RHO,
    agree,
    alone,
    assert_close,
    create,
    ddp,
    fsdp2,
    look,
    make_base,
    make_model,
    same,
    start,
    train,
    whole,
)
from torch.distributed.checkpoint.state_dict import StateDictOptions as Options
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import letsam

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

METHODS = ["sam", "looksam", "fsam", "ae-sam", "ae-looksam", "lets-sam", "auto-sam", "auto-looksam"]
BASES = ["momentum", "adamw"]
SAVED, END = 4, 8  # LookSAM is between two perturbed steps when it is saved


def save(folder, net, opt, options=None):
    model, optimizer = get_state_dict(net, opt, options=options)
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder)


def load(folder, net, opt, options=None):
    model, optimizer = get_state_dict(net, opt, options=options)
    dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
    set_state_dict(net, opt, model_state_dict=model, optim_state_dict=optimizer, options=options)


def resume(folder, name, base, wrap, flat=False, through_base=False, full=False):
    """The steps after a checkpoint: of the run that wrote it, and of one that read it."""
    options = Options(flatten_optimizer_state_dict=flat, full_state_dict=full)
    net, opt = start(name, wrap, base)
    train(net, opt, 0, SAVED)
    save(folder, net, opt.base if through_base else opt, options)
    went_on = train(net, opt, SAVED, END)
    net, opt = start(name, wrap, base, seed=1)
    load(folder, net, opt.base if through_base else opt, options)
    return went_on, train(net, opt, SAVED, END)


@pytest.mark.parametrize(("base", "flat"), [("sgd", False), ("momentum", True), ("adamw", False), ("adamw", True)])
@pytest.mark.parametrize("name", METHODS)
def test_one_process_resumes_bit_for_bit(tmp_path, name, base, flat):
    assert agree(*resume(tmp_path, name, base, alone, flat))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", METHODS)
def test_fsdp2_resumes_bit_for_bit(world, tmp_path, name, base):
    for rank in world.run(resume, tmp_path, name, base, fsdp2):
        assert agree(*rank)


@pytest.mark.parametrize(("flat", "full"), [(True, False), (False, True)])
@pytest.mark.parametrize("name", ["looksam", "auto-sam"])
def test_fsdp2_resumes_bit_for_bit_from_a_flat_or_a_gathered_state(world, tmp_path, name, flat, full):
    for rank in world.run(resume, tmp_path, name, "adamw", fsdp2, flat, False, full):
        assert agree(*rank)


@pytest.mark.parametrize("name", ["looksam", "auto-sam"])
def test_ddp_resumes_bit_for_bit(world, tmp_path, name):
    for rank in world.run(resume, tmp_path, name, "adamw", ddp):
        assert agree(*rank)


@pytest.mark.parametrize("name", ["looksam", "fsam", "auto-sam"])
def test_a_framework_may_save_the_base(tmp_path, name):
    assert agree(*resume(tmp_path, name, "adamw", alone, through_base=True))


def contents(opt):
    """The whole state, with shards put together."""
    state = [{key: whole(x).clone() for key, x in opt.state[p].items()} for g in opt.param_groups for p in g["params"]]
    return look(opt), state


def write(folder, name, base, wrap):
    net, opt = start(name, wrap, base)
    train(net, opt, 0, SAVED)
    save(folder, net, opt)
    return contents(opt), train(net, opt, SAVED, END)


def read(folder, name, base, wrap):
    net, opt = start(name, wrap, base, seed=1)
    load(folder, net, opt)
    return contents(opt), train(net, opt, SAVED, END)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("looksam", "momentum"),
        ("fsam", "adamw"),
        ("ae-sam", "momentum"),
        ("lets-sam", "momentum"),
        ("auto-sam", "adamw"),
    ],
)
@pytest.mark.parametrize("direction", ["two to one", "one to two"])
def test_a_checkpoint_moves_between_two_ranks_and_one(world, tmp_path, direction, name, base):
    if direction == "two to one":
        written, read_back = world.run(write, tmp_path, name, base, fsdp2)[0], read(tmp_path, name, base, alone)
    else:
        written, read_back = write(tmp_path, name, base, alone), world.run(read, tmp_path, name, base, fsdp2)[0]
    ((saved, saved_state), went_on), ((loaded, loaded_state), resumed) = written, read_back
    assert same({**saved, "perturbed": None}, {**loaded, "perturbed": None})
    for ours, theirs in zip(loaded_state, saved_state, strict=True):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert_close(resumed, went_on, 1e-12)


@pytest.mark.parametrize("base", [*BASES, "sgd"])
@pytest.mark.parametrize("name", METHODS)
def test_making_the_state_disturbs_a_fresh_training_as_it_does_the_base_alone(name, base):
    """A checkpoint of an optimizer that never stepped makes it step once, with zero gradients and learning rates."""
    net, opt = start(name, base=base)
    before = look(opt)
    get_state_dict(net, opt)
    assert same(before, look(opt))

    net_of_base = make_model()
    base_alone = make_base(base, net_of_base)
    get_state_dict(net_of_base, base_alone)
    wrapped_later = create(name, base_alone, net_of_base)
    assert agree(train(net, opt), train(net_of_base, wrapped_later))


def test_a_checkpoint_from_before_the_first_perturbed_step_can_be_loaded(tmp_path):
    """RST's coin with LookSAM's and FriendlySAM's memory: the base has stepped, the memory is still empty."""

    def fresh(seed):
        net = make_model(seed)
        policy, perturbation = letsam.policies.Bernoulli(p=0.5), letsam.perturbations.Friendly()
        return net, letsam.SharpnessAware(
            make_base("adamw", net), model=net, policy=policy, perturbation=perturbation, radius=RHO
        )

    net, opt = fresh(0)
    assert not train(net, opt, 0, 1)[0]["perturbed"]
    save(tmp_path, net, opt)
    went_on = train(net, opt, 1, END)
    assert any(step["perturbed"] for step in went_on)
    net, opt = fresh(1)
    load(tmp_path, net, opt)
    assert agree(went_on, train(net, opt, 1, END))
