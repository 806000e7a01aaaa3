"""What Trainer documents works as it does without letsam."""

import copy
import math

import pytest
import torch
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
    set_seed,
)

import letsam
from letsam.integrations.transformers import SharpnessAwareMixin, SharpnessAwareTrainer
from tiny import SMALL, arguments, assert_same, bert, causal, logged, sentences, texts, trainer


@pytest.mark.parametrize("accumulation", [1, 4])
def test_erm_is_the_plain_trainer(accumulation, tmp_path):
    """With Trainer's own optimizer, groups, schedule, shuffling and dropout; the last step has fewer micro-batches."""
    settings = {
        "gradient_accumulation_steps": accumulation,
        "max_grad_norm": 1.0,
        "warmup_steps": 2,
        "weight_decay": 0.1,
    }
    made = []
    for kind in (Trainer, SharpnessAwareTrainer):
        made.append(trainer(tmp_path, "erm", bert(dropout=0.1), kind=kind, arguments_=settings))
        made[-1].train()
    assert_same(made[0].model, made[1].model)
    for name in ("loss", "grad_norm", "learning_rate"):
        assert logged(made[0], name) == pytest.approx(logged(made[1], name), rel=1e-6)
    assert not logged(made[1], "rho")


def test_radius_and_perturbation_are_logged(tmp_path):
    made = trainer(tmp_path, "asam", method_options={"rho": 0.1})
    made.train()
    assert len(logged(made, "rho")) == len(logged(made, "perturbation_norm")) == made.state.global_step
    assert logged(made, "rho") == [pytest.approx(0.1)] * made.state.global_step
    assert logged(made, "perturbation_norm")[-1] == made.sharpness_aware.last.perturbation_norm > 0
    assert not logged(made, "skipped_steps")


def test_a_log_between_perturbed_steps_tells_the_last_perturbation(tmp_path):
    made = trainer(tmp_path, "looksam", method_options={"k": 5}, arguments_={"logging_steps": 3, "max_steps": 6})
    made.train()
    assert logged(made, "perturbation_norm") == [pytest.approx(0.05)] * 2


def test_label_smoothing_is_in_every_pass(tmp_path):
    """A loop with smoothed cross-entropy gets the same weights."""
    data, model, twin = texts(8), bert(), bert().train()
    settings = {"label_smoothing_factor": 0.2, "train_sampling_strategy": "sequential"}
    base = lambda m: torch.optim.SGD(m.parameters(), lr=0.1)  # noqa: E731
    constant = lambda opt: torch.optim.lr_scheduler.LambdaLR(opt, lambda t: 1)  # noqa: E731
    sgd = base(model)
    trainer(tmp_path, "sam", model, train=data, optimizers=(sgd, constant(sgd)), arguments_=settings).train()

    opt = letsam.create("sam", base(twin), model=twin)
    smoothed = nn.CrossEntropyLoss(label_smoothing=0.2)
    for i in range(0, 8, 2):
        batch = {key: torch.stack([row[key] for row in data[i : i + 2]]) for key in data[0]}
        opt.step(letsam.closure(twin, lambda out, given: smoothed(out.logits, given["labels"]), batch))
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)


def test_bf16(tmp_path):
    made = trainer(tmp_path, "auto-sam", arguments_={"bf16": True, "gradient_accumulation_steps": 2})
    made.train()
    assert all(map(math.isfinite, logged(made, "loss")))
    assert made.model.bert.embeddings.word_embeddings.weight.dtype == torch.float32
    assert made.sharpness_aware.last.perturbed_loss != made.sharpness_aware.last.loss


def test_evaluate_and_predict_are_untouched(tmp_path):
    model, data = bert(), texts(10, seed=5)
    evaluated = [
        trainer(tmp_path, "auto-sam", copy.deepcopy(model), kind=kind, eval_dataset=data)
        for kind in (Trainer, SharpnessAwareTrainer)
    ]
    a, b = (each.predict(data) for each in evaluated)
    assert (a.predictions == b.predictions).all()
    a, b = (each.evaluate() for each in evaluated)
    assert a["eval_loss"] == b["eval_loss"]
    assert_same(model, evaluated[1].model)


def test_evaluation_during_training_changes_nothing(tmp_path):
    settings = {"eval_strategy": "steps", "eval_steps": 2}
    made = []
    for some in (settings, {}):
        made.append(trainer(tmp_path, "auto-sam", bert(), eval_dataset=texts(6), arguments_=some))
        made[-1].train()
    assert logged(made[0], "eval_loss")
    assert_same(made[0].model, made[1].model)


class Weighted(SharpnessAwareTrainer):
    """A loss of one's own, which counts its calls."""

    calls = 0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self.calls += 1
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = nn.functional.cross_entropy(outputs.logits, labels, weight=torch.tensor([1.0, 3.0]))
        return (loss, outputs) if return_outputs else loss


def test_compute_loss_of_a_subclass_is_in_every_pass(tmp_path):
    made = trainer(tmp_path, "sam", kind=Weighted, arguments_={"gradient_accumulation_steps": 2, "max_steps": 3})
    made.train()
    assert made.calls == 3 * 2 * 2


def test_optimizer_class_and_arguments(tmp_path):
    made = trainer(tmp_path, "sam", optimizer_cls_and_kwargs=(torch.optim.Adagrad, {"lr": 0.05}))
    made.train()
    assert isinstance(made.sharpness_aware.base, torch.optim.Adagrad)
    assert made.sharpness_aware.param_groups[0]["initial_lr"] == 0.05


def test_a_first_group_without_parameters(tmp_path):
    """Trainer puts what has weight decay first: with biases alone to train, there is nothing in it."""
    model = bert()
    for name, p in model.named_parameters():
        p.requires_grad = name.endswith("bias")
    made = trainer(tmp_path, "auto-sam", model)
    made.train()
    assert logged(made, "rho")


class Table(list):
    """Like a datasets.Dataset: parts of it are made with select."""

    def select(self, indices):
        return Table(self[i] for i in indices)


def test_what_is_held_out_is_never_trained_on(tmp_path):
    rows = Table(row | {"n": i} for i, row in enumerate(texts()))
    made = trainer(tmp_path, "auto-sam", train=rows, held_out=0.25, eval_dataset=texts(8))
    parts = (made.train_dataset, made.radius_dataset)
    trained, held_out = ({row["n"] for row in part} for part in parts)
    assert all(isinstance(part, Table) for part in parts)
    assert len(held_out) == round(0.25 * 46)
    assert trained | held_out == set(range(46))
    assert not trained & held_out

    made.train()  # "n" is no input of the model: the collator leaves it out
    assert logged(made, "rho")


def test_the_gradient_is_there_when_callbacks_look(tmp_path):
    found = []

    class Look(TrainerCallback):
        def on_optimizer_step(self, args, state, control, model, **_):
            found.append(model.classifier.weight.grad is not None)

    trainer(tmp_path, "auto-sam", callbacks=[Look()], arguments_={"max_steps": 2}).train()
    assert found == [True, True]


def test_a_step_that_is_not_finite_moves_nothing(tmp_path):
    made = trainer(tmp_path, "auto-sam", bert(), kind=Exploding, arguments_={"max_steps": 3})
    made.train()
    assert_same(made.before, made.after)
    assert not all(torch.equal(p, q) for p, q in zip(made.after.parameters(), made.model.parameters(), strict=True))
    assert logged(made, "skipped_steps") == [1, 1]


class Exploding(SharpnessAwareTrainer):
    """The second step's perturbed pass is not finite."""

    def compute_loss(self, model, inputs, **more):
        if self.state.global_step == 1 and not hasattr(self, "before"):
            self.before = copy.deepcopy(model)
            self.seen = 0
        if self.state.global_step == 2 and not hasattr(self, "after"):
            self.after = copy.deepcopy(model)
        loss = super().compute_loss(model, inputs, **more)
        if self.state.global_step == 1:
            self.seen += 1
            return loss * (float("inf") if self.seen == 2 else 1)
        return loss


class Translator(SharpnessAwareMixin, Seq2SeqTrainer):
    """The mixin before another trainer."""


def test_seq2seq(tmp_path):
    set_seed(0)
    layers = {f"{side}_{what}": 1 for side in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    sizes = {"d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 16}
    model = BartForConditionalGeneration(BartConfig(vocab_size=40, **layers, **sizes))
    decoding = {"predict_with_generate": True, "generation_max_length": 8}
    settings = arguments(tmp_path, num_train_epochs=8, **decoding, kind=Seq2SeqTrainingArguments)
    data = [{"input_ids": row["input_ids"], "labels": row["input_ids"].flip(0)} for row in texts(16)]
    made = Translator(model, settings, train_dataset=data, eval_dataset=data[:4], method="auto-sam")
    before = made.evaluate(data)["eval_loss"]
    made.train()
    assert made.evaluate(data)["eval_loss"] < 0.9 * before  # of all the data: a batch's loss is mostly its noise
    assert made.predict(data[:4]).predictions.shape[0] == 4


def test_deberta_learns(tmp_path):
    set_seed(0)
    config = DebertaV2Config(
        **SMALL, max_position_embeddings=16, relative_attention=True, pos_att_type=["p2c", "c2p"], type_vocab_size=0
    )
    model = DebertaV2ForSequenceClassification(config)
    settings = {"num_train_epochs": 4, "per_device_train_batch_size": 8, "max_grad_norm": 1.0, "learning_rate": 5e-3}
    made = trainer(tmp_path, "auto-sam", model, train=texts(160), arguments_=settings)
    made.train()
    losses = logged(made, "loss")
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_a_language_model_learns(tmp_path):
    made = trainer(tmp_path, "sam", causal(), train=sentences(64), arguments_={"num_train_epochs": 4})
    made.train()
    assert logged(made, "loss")[-1] < logged(made, "loss")[0]


class Normed(nn.Module):
    """No model of transformers, with BatchNorm."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Embedding(40, 8), nn.Flatten(), nn.BatchNorm1d(48), nn.Linear(48, 2))

    def forward(self, input_ids, labels=None):
        logits = self.layers(input_ids)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.parametrize(
    ("method", "settings", "own"),
    [
        ("sam", {"learning_rate": 0.0}, {}),
        ("auto-sam", {"learning_rate": 0.0}, {"radius_dataset": texts(8)}),
        ("sam", {}, {"method_options": {"rho": 0.0}}),
    ],
)
def test_batchnorm_statistics_are_those_of_the_clean_passes(method, settings, own, tmp_path):
    """At learning rate 0 they are those of the plain Trainer, however many passes there are; also at radius 0."""
    settings = settings | {"gradient_accumulation_steps": 2}
    plain = trainer(tmp_path, None, Normed(), kind=Trainer, arguments_=settings)
    made = trainer(tmp_path, method, Normed(), arguments_=settings, **own)
    plain.train()
    made.train()
    assert_same(plain.model, made.model)


def test_gradient_checkpointing_changes_nothing(tmp_path):
    made = []
    for checkpointing in (False, True):
        made.append(trainer(tmp_path, "sam", bert(0.1), arguments_={"gradient_checkpointing": checkpointing}))
        made[-1].train()
    assert_same(made[0].model, made[1].model)


def test_model_init_and_a_second_training(tmp_path):
    args = arguments(tmp_path, max_steps=3)
    made = SharpnessAwareTrainer(model_init=lambda: bert(), args=args, train_dataset=texts(), method="auto-sam")
    made.train()
    first = copy.deepcopy(made.model)
    made.train()  # from a new model
    assert_same(first, made.model)

    made = trainer(tmp_path, "auto-sam", arguments_={"max_steps": 3})
    made.train()
    made.train()  # goes on with model, optimizer and radius
    assert made.sharpness_aware.param_groups[0]["sam_step"] == 6
