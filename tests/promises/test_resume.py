"""Resume equals never having stopped, bit for bit."""

import copy
import io
import pickle

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from small import BASES, METHODS, assert_equal, create, make_model, radius, train


def through_state_dict(model, opt, method, base, folder, **options):
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other = make_model(seed=9)
    other.load_state_dict(saved["model"])
    resumed = create(method, other, base, **options)
    resumed.load_state_dict(saved["opt"])
    return other, resumed


def through_pickle(model, opt, method, base, folder, **options):
    return pickle.loads(pickle.dumps((model, opt)))


def through_deepcopy(model, opt, method, base, folder, **options):
    return copy.deepcopy((model, opt))


def through_distributed_checkpoint(model, opt, method, base, folder, **options):
    dcp.save({"model": model.state_dict(), "opt": get_optimizer_state_dict(model, opt)}, checkpoint_id=folder)
    other = make_model(seed=9)
    resumed = create(method, other, base, **options)
    if opt.param_groups[0]["sam_frozen"]:
        resumed.freeze_radius()  # such a checkpoint fills the places that it finds, and knows no others
    state = {"model": other.state_dict(), "opt": get_optimizer_state_dict(other, resumed)}
    dcp.load(state, checkpoint_id=folder)
    other.load_state_dict(state["model"])
    set_optimizer_state_dict(other, resumed, state["opt"])
    return other, resumed


WAYS = [through_state_dict, through_pickle, through_deepcopy, through_distributed_checkpoint]


# The pseudo-random number generator of pytest-xdist's workers needs a fixed order: lists, not sets.
@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__.removeprefix("through_"))
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled.*")
def test_resume(method, base, way, tmp_path):
    model = make_model()
    opt = create(method, model, base)
    train(model, opt, 4)
    other, resumed = way(model, opt, method, base, tmp_path / "checkpoint")
    train(model, opt, 4, first=4)
    train(other, resumed, 4, first=4)
    assert_equal(model, other)
    assert torch.equal(radius(opt), radius(resumed))
    scalars = [k for k in opt.param_groups[0] if k.startswith("sam_")]
    assert {k: float(opt.param_groups[0][k]) for k in scalars} == {
        k: float(resumed.param_groups[0][k]) for k in scalars
    }


def test_a_step_that_was_not_taken_is_not_remembered():
    model = make_model()
    opt = create("looksam", model)
    train(model, opt, 1)
    first = {p: s["sam_g_v"].clone() for p, s in opt.state.items()}
    opt.param_groups[0]["sam_step"] = 5  # a perturbed step, whose gradient nobody uses
    from small import closures

    opt.backward(next(closures(model, 3)))
    saved = opt.state_dict()["state"]
    assert all(torch.equal(saved[i]["sam_g_v"], g_v) for i, g_v in enumerate(first.values()))


def test_a_checkpoint_of_the_plain_base_starts_the_radius_afresh():
    model = make_model()
    plain = BASES["momentum"](model.parameters())
    opt = create("auto-sam", model)
    opt.load_state_dict(plain.state_dict())
    assert radius(opt) == 0.005
    train(model, opt, 2)


def test_wrapping_again_drops_what_the_first_method_left():
    model = make_model()
    base = BASES["adamw"](model.parameters())
    train(model, create("looksam", model, base), 3)
    opt = create("sam", model, base)
    assert not any(key.startswith("sam_") for state in opt.state.values() for key in state)
    assert opt.param_groups[0]["sam_step"] == 0
    train(model, opt, 2)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.AdamW])
def test_a_contiguous_checkpoint_of_a_channels_last_model(base, fused):
    """safetensors and others keep no strides; torch's fused steps go through memory in its order."""

    def start():
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.Flatten(), nn.Linear(24, 5)
        model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
        options = {"momentum": 0.9} if base is torch.optim.SGD else {}
        return model, create("looksam", model, base(model.parameters(), lr=0.01, fused=fused, **options))

    whole, opt = start()
    train(whole, opt, 3)
    saved = copy.deepcopy((whole.state_dict(), opt.state_dict()))
    for state in saved[1]["state"].values():
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                state[key] = value.contiguous()
    train(whole, opt, 3, first=3)
    other, opt2 = start()
    other.load_state_dict(saved[0])
    opt2.load_state_dict(saved[1])
    train(other, opt2, 3, first=3)
    assert_equal(whole, other)


@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__.removeprefix("through_"))
@pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled.*")
def test_what_a_learned_radius_carries_forward_survives(way, tmp_path):
    options = {"memory": 0.9, "every": 3}
    model = make_model()
    opt = create("auto-gsam", model, "adamw", **options)
    train(model, opt, 5)
    other, resumed = way(model, opt, "auto-gsam", "adamw", tmp_path / "checkpoint", **options)
    train(model, opt, 5, first=5)
    train(other, resumed, 5, first=5)
    assert_equal(model, other)
    assert torch.equal(radius(opt), radius(resumed))


@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__.removeprefix("through_"))
@pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled.*")
def test_a_frozen_radius_survives(way, tmp_path):
    model = make_model()
    opt = create("auto-sam", model)
    train(model, opt, 3)
    opt.freeze_radius()
    train(model, opt, 1, first=3)
    other, resumed = way(model, opt, "auto-sam", "momentum", tmp_path / "checkpoint")
    train(model, opt, 3, first=4)
    train(other, resumed, 3, first=4)
    assert_equal(model, other)
    assert torch.equal(radius(opt), radius(resumed))


def remembered(opt):
    return {key for state in opt.state.values() for key in state if key.startswith("sam_")}


def test_a_frozen_radius_stays_and_needs_no_validation():
    model = make_model()
    opt = create("auto-sam", model, memory=0.9)
    train(model, opt, 3)
    opt.freeze_radius()
    assert remembered(opt) == set()
    learned = radius(opt).clone()
    other = make_model(seed=9)
    other.load_state_dict(model.state_dict())
    resumed = create("auto-sam", other, memory=0.9)
    resumed.load_state_dict(copy.deepcopy(opt.state_dict()))
    for m, o in ((model, opt), (other, resumed)):
        assert not o.needs_validation
        train(m, o, 3, first=3)
        assert torch.equal(radius(o), learned)
        assert o.last.passes == 2
        assert remembered(o) == set()
    assert_equal(model, other)


def test_what_only_another_method_remembers_is_not_kept():
    model, other = make_model(), make_model()
    opt, loaded = create("auto-looksam", model), create("looksam", other)
    train(model, opt, 3)
    assert remembered(opt) == {"sam_response", "sam_g_v"}
    loaded.load_state_dict(copy.deepcopy(opt.state_dict()))
    train(other, loaded, 3, first=3)
    assert remembered(loaded) == {"sam_g_v"}
