"""A training that is resumed from a checkpoint equals one that never stopped, bit for bit, radius included."""

import json

import pytest
import torch
from transformers import Trainer

from tiny import Interrupt, assert_same, bert, logged, texts, trainer

SETTINGS = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 1}


def run(folder, method, accumulation, *, stop=None, resume=None, **more):
    model = bert(dropout=0.1)
    callbacks = [Interrupt(stop)] if stop else []
    arguments = SETTINGS | {"gradient_accumulation_steps": accumulation, "max_grad_norm": 1.0}
    options = {"k": 2} if method == "looksam" else {}
    more = {"train": texts(22), "method_options": options, "callbacks": callbacks} | more
    made = trainer(folder, method, model, arguments_=arguments, **more)
    made.train(resume_from_checkpoint=resume)
    return made


@pytest.mark.parametrize(
    ("method", "accumulation"), [("sam", 1), ("looksam", 1), ("ae-sam", 4), ("lets-asam", 4), ("auto-sam", 4)]
)
def test_resumed_in_the_middle_equals_uninterrupted(method, accumulation, tmp_path):
    stop = 12 // accumulation  # in the second epoch, whose last step has fewer micro-batches
    whole = run(tmp_path / "whole", method, accumulation)
    run(tmp_path / "part", method, accumulation, stop=stop)
    resumed = run(tmp_path / "part", method, accumulation, resume=True)

    assert resumed.state.global_step == whole.state.global_step > stop
    assert_same(whole.model, resumed.model)
    a, b = (made.sharpness_aware.state_dict() for made in (whole, resumed))
    assert str(a["param_groups"]) == str(b["param_groups"])
    for p, state in a["state"].items():
        assert all(torch.equal(value, b["state"][p][key]) for key, value in state.items())
    for name in ("loss", "rho", "perturbation_norm", "grad_norm"):
        assert logged(whole, name) == logged(resumed, name)


def test_the_held_out_part_is_recorded_and_has_to_be_the_same(tmp_path):
    made = run(tmp_path, "auto-sam", 1, stop=2, held_out=4)
    assert made.held_out == {"samples": 4, "of": 22, "seed": 42}
    record = json.loads((tmp_path / "checkpoint-2" / "letsam.json").read_text())
    assert record == {"method": "auto-sam", "method_options": {}, "held_out": made.held_out, "give_back": 0.25}
    with pytest.raises(ValueError, match="was made with held_out"):
        run(tmp_path, "auto-sam", 1, resume=True, held_out=5)
    with pytest.raises(ValueError, match="was made with method = auto-sam, not auto-asam"):
        run(tmp_path, "auto-asam", 1, resume=True, held_out=4)
    with pytest.raises(ValueError, match=r"method_options = \{\}, not \{'kappa': '0.1'\}"):
        run(tmp_path, "auto-sam", 1, resume=True, held_out=4, method_options={"kappa": 0.1})
    with pytest.raises(ValueError, match=r"was made with give_back = 0.25, not 0.5"):
        run(tmp_path, "auto-sam", 1, resume=True, held_out=4, give_back=0.5)


def test_a_checkpoint_from_before_anything_was_given_back_gives_nothing_back(tmp_path):
    run(tmp_path, "auto-sam", 1, stop=2, give_back=0)
    file = tmp_path / "checkpoint-2" / "letsam.json"
    record = json.loads(file.read_text())
    del record["give_back"]
    file.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"was made with give_back = 0.0, not 0.25: make the trainer as it was"):
        run(tmp_path, "auto-sam", 1, resume=True)
    assert run(tmp_path, "auto-sam", 1, resume=True, give_back=0).state.global_step == 20


def test_a_plain_checkpoint_starts_the_radius_afresh(tmp_path, caplog):
    plain = trainer(
        tmp_path, None, bert(), kind=Trainer, train=texts(22), arguments_=SETTINGS, callbacks=[Interrupt(2)]
    )
    plain.train()
    made = run(tmp_path, "sam", 1, resume=True)
    assert "the radius starts afresh" in caplog.text
    assert made.state.global_step == 22
    assert logged(made, "rho")[-1] == pytest.approx(0.05)
