"""What is held out for a learned radius is trained on in the last epochs, and in none before."""

import copy

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, WeightedRandomSampler
from transformers import Trainer, TrainerCallback

from letsam.integrations.transformers.held_out import carve
from tiny import Interrupt, Recorder, arguments, assert_same, bert, logged, rows, texts, trainer

DATA = texts(22)
FREE = {"every": 1, "gated": False, "bounds": (1e-5, 1.0)}


def run(folder, epochs=4, kind=Recorder, resume=None, **more):
    """Twenty-two samples, two held out, in steps of two: eleven steps an epoch, ten without what is held out."""
    settings = {"num_train_epochs": epochs} | more.pop("arguments_", {})
    made = trainer(folder, "auto-sam", kind=kind, **{"train": DATA, "method_options": FREE} | more, arguments_=settings)
    made.train(resume_from_checkpoint=resume)
    return made


def epochs_of(made, steps=11):
    """The rows of each epoch, in order."""
    flat = [[row for batch in made.seen[i : i + steps] for row in batch] for i in range(0, len(made.seen), steps)]
    return flat, set(rows(made.radius_dataset))


class Table(list):
    """Like a datasets.Dataset: parts of it are made with select."""

    def select(self, indices):
        return Table(self[i] for i in indices)


def dataset(data):
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_list([{k: v.tolist() for k, v in row.items()} for row in data]).with_format("torch")


@pytest.mark.parametrize("kind", [list, Table, dataset])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_every_sample_is_seen_once_in_a_given_back_epoch_and_none_that_is_held_out_before(kind, accumulation, tmp_path):
    made = run(tmp_path, train=kind(DATA), arguments_={"gradient_accumulation_steps": accumulation})
    epochs, held_out = epochs_of(made)
    assert [len(epoch) for epoch in epochs] == [22] * 4
    assert made.state.global_step == 4 * -(-11 // accumulation)
    for epoch in epochs[:3]:
        assert held_out.isdisjoint(epoch)
        assert set(epoch) | held_out <= set(rows(DATA))
    assert sorted(epochs[3]) == sorted(rows(DATA))
    before = [row for epoch in epochs[:3] for row in epoch]
    assert all(len(set(before[i : i + 20])) == 20 for i in range(0, 60, 20)), "permutations of the rest, end to end"
    steps = made.state.global_step * 3 // 4
    assert len(set(logged(made, "rho")[:steps])) == steps
    assert len(set(logged(made, "rho")[steps - 1 :])) == 1


@pytest.mark.parametrize(
    ("settings", "share", "given_back"),
    [
        ({"num_train_epochs": 1}, None, [False]),
        ({"num_train_epochs": 2}, None, [False, False]),
        ({"num_train_epochs": 3}, None, [False, False, True]),
        ({"num_train_epochs": 2.5}, None, [False, False, True]),
        ({"num_train_epochs": 4}, 0.5, [False, False, True, True]),
        ({"max_steps": 5}, None, [False]),
        ({"max_steps": 40}, None, [False, False, False, True]),
    ],
)
def test_which_epochs_are_given_back(settings, share, given_back, tmp_path):
    """Whole ones; one that is cut short is an epoch, too."""
    made = run(tmp_path, arguments_=settings, give_back=share)
    epochs, held_out = epochs_of(made)
    assert len(epochs) == len(given_back)
    order, data = carve(DATA, None, 42)[2], rows(DATA)
    for number, (epoch, back) in enumerate(zip(epochs, given_back, strict=True)):
        order.epoch, order.given_back = number, back
        assert epoch == [data[i] for i in order][: len(epoch)]
        assert back or held_out.isdisjoint(epoch)
    assert sum(map(len, epochs)) == 2 * made.state.global_step
    assert made.sharpness_aware.needs_validation == (not given_back[-1])


def test_nothing_is_given_back_with_0(tmp_path):
    """Epochs are those of a Trainer that has the training part alone."""
    made = run(tmp_path, give_back=0)
    rest, held_out, _ = carve(DATA, None, 42)
    other = run(tmp_path, train=rest, radius_dataset=held_out)
    assert made.seen == other.seen
    assert made.state.global_step == 40
    assert_same(made.model, other.model)
    assert logged(made, "rho") == logged(other, "rho")


def test_an_epoch_that_is_cut_short_is_one(tmp_path):
    class Cut(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_epoch_stop = True

    whole, cut = run(tmp_path), run(tmp_path, callbacks=[Cut()])
    assert cut.seen == whole.seen[::11]
    assert not cut.sharpness_aware.needs_validation


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("epochs_done", [0.5, 1, 1.5, 2.5, 3, 3.5])
def test_resumed_before_and_after_it_is_given_back_equals_uninterrupted(accumulation, epochs_done, tmp_path):
    """The samples too, in their order: those of an epoch that was begun are gone on with."""
    steps = -(-11 // accumulation)
    stop = int(epochs_done * steps)
    settings = {"gradient_accumulation_steps": accumulation, "save_strategy": "steps", "save_steps": 1}
    whole = run(tmp_path / "whole", arguments_=settings)
    part = run(tmp_path / "part", arguments_=settings, callbacks=[Interrupt(stop)])
    resumed = run(tmp_path / "part", arguments_=settings, resume=True)

    assert part.state.global_step == stop
    assert part.seen + resumed.seen == whole.seen
    assert_same(whole.model, resumed.model)
    assert not resumed.sharpness_aware.needs_validation
    for name in ("loss", "rho"):
        assert logged(whole, name) == logged(resumed, name)


def test_workers_change_nothing(tmp_path):
    settings = {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}
    a, b = run(tmp_path), run(tmp_path, arguments_=settings)
    assert a.seen == b.seen
    assert_same(a.model, b.model)


def test_a_second_training_goes_on_with_the_radius_and_everything(tmp_path):
    """The network has seen what was held out: it says nothing more about the radius."""
    made = run(tmp_path)
    radius = logged(made, "rho")[-1]
    made.seen.clear()
    made.train()
    epochs, _ = epochs_of(made)
    assert [sorted(epoch) for epoch in epochs] == [sorted(rows(DATA))] * 4
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert logged(made, "rho") == [radius] * 44


def test_a_second_training_of_a_new_model_holds_out_again(tmp_path):
    args = arguments(tmp_path, num_train_epochs=3)
    made = Recorder(model_init=lambda: bert(), args=args, train_dataset=DATA, method="auto-sam", method_options=FREE)
    made.train()
    seen, model, radii = made.seen.copy(), copy.deepcopy(made.model), logged(made, "rho")
    made.seen.clear()
    made.train()
    assert made.seen == seen
    assert_same(made.model, model)
    assert logged(made, "rho") == radii


class OwnLoader(Recorder):
    """It does not ask the mixin for a loader, but for the sampler of one."""

    def get_train_dataloader(self):
        sampler = self._get_train_sampler(self.train_dataset)
        return DataLoader(self.train_dataset, 2, sampler=sampler, collate_fn=self.data_collator)


class Shuffled(Trainer):
    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, 2, shuffle=True, collate_fn=self.data_collator)


class Beneath(Recorder, Shuffled):
    """The mixin asks it for a loader, and it has one of its own."""


class OwnSampler(Recorder):
    def _get_train_sampler(self, *dataset):
        return WeightedRandomSampler([1.0] * len(self.train_dataset), len(self.train_dataset))


class Drawn(Trainer):
    def _get_train_sampler(self, *dataset):
        return RandomSampler(self.train_dataset, replacement=True)


class BeneathDrawn(Recorder, Drawn):
    """A sampler that is random, and not a permutation."""


OTHERS = {
    "sequential": {"arguments_": {"train_sampling_strategy": "sequential"}},
    "by length": {"arguments_": {"train_sampling_strategy": "group_by_length"}},
    "own loader": {"kind": OwnLoader},
    "own loader beneath": {"kind": Beneath},
    "own sampler": {"kind": OwnSampler},
    "own sampler beneath": {"kind": BeneathDrawn},
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_order_sees_the_training_part_alone_and_says_so(case, tmp_path, caplog):
    made = run(tmp_path, **OTHERS[case])
    epochs, held_out = epochs_of(made, steps=10)
    assert [len(epoch) for epoch in epochs] == [20] * 4
    assert all(held_out.isdisjoint(epoch) for epoch in epochs)
    assert made.sharpness_aware.needs_validation
    assert caplog.text.count("what is held out is not given back") == 1
    caplog.clear()
    run(tmp_path, epochs=1, **OTHERS[case])  # nothing would be given back
    run(tmp_path, give_back=0, **OTHERS[case])
    assert "not given back" not in caplog.text


def test_another_training_set_is_the_one_that_is_trained_on(tmp_path, caplog):
    made = trainer(tmp_path, "auto-sam", kind=Recorder, train=DATA, arguments_={"num_train_epochs": 3})
    made.train_dataset = texts(8, seed=9)
    made.train()
    assert {row for batch in made.seen for row in batch} == set(rows(made.train_dataset))
    assert "not given back" in caplog.text


def test_a_loader_that_is_looked_at_has_nothing_that_is_held_out(tmp_path):
    made = trainer(tmp_path, "auto-sam", train=DATA)
    seen = [tuple(row) for batch in made.get_train_dataloader() for row in batch["input_ids"].tolist()]
    assert set(seen) == set(rows(made.train_dataset))


def test_the_radius_has_to_learn_in_one_epoch_at_least(tmp_path):
    for share, epochs in ((1, 4), (0.9, 4), (0.6, 1)):
        with pytest.raises(ValueError, match=f"give_back={share:.1f} of {epochs} epochs is all") as caught:
            run(tmp_path, epochs, give_back=share)
        assert "\n" not in str(caught.value)


def test_an_order_is_a_function_of_seed_and_epoch():
    """Nothing is remembered from one epoch to the next, nor drawn from the state of the run."""
    order, twin, other = (carve(range(30), 7, seed)[2] for seed in (1, 1, 2))
    state = torch.get_rng_state()
    for epoch in (3, 0, 2):
        for one in (order, twin, other):
            one.epoch, one.given_back = epoch, epoch == 3
        list(twin)
        assert list(order) == list(twin) != list(other)
        assert len(list(order)) == len(order) == 30
    assert torch.equal(torch.get_rng_state(), state)
