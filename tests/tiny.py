"""Tiny random models of transformers, data for them, and trainers that write to a folder of the test."""

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from letsam.integrations.transformers import SharpnessAwareTrainer

SMALL = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
METHODS = ("sam", "asam", "gsam", "looksam", "ae-sam", "lets-sam", "auto-sam")


def bert(dropout=0.0, **more):
    set_seed(0)
    drop = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return BertForSequenceClassification(BertConfig(**SMALL, **drop, max_position_embeddings=16, **more))


def texts(n=46, seed=0, length=6):
    """Sequences of tokens; the label is whether the first token is in the upper half of the vocabulary."""
    tokens = torch.randint(0, 40, (n, length), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "labels": (row[0] >= 20).long()} for row in tokens]


def arguments(folder, kind=TrainingArguments, **more):
    defaults = {
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "linear",
        "num_train_epochs": 1,
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return kind(output_dir=str(folder), **(defaults | more))


def trainer(folder, method, model=None, kind=SharpnessAwareTrainer, train=None, arguments_=None, **more):
    """arguments_: those of TrainingArguments that differ from the defaults above."""
    options = ("method_options", "radius_dataset", "held_out", "give_back")
    own = {key: more.pop(key) for key in options if key in more}
    if issubclass(kind, SharpnessAwareTrainer.__mro__[1]):
        own["method"] = method
    made = kind(
        bert() if model is None else model,
        arguments(folder, **(arguments_ or {})),
        train_dataset=texts() if train is None else train,
        **own,
        **more,
    )
    made.pop_callback(_printer())
    return made


def _printer():
    from transformers.trainer_callback import PrinterCallback

    return PrinterCallback


class Interrupt(TrainerCallback):
    """Stops a training after some steps, as Ctrl-C would after a checkpoint."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= self.step


class Recorder(SharpnessAwareTrainer):
    """Writes down the rows that it trains on, micro-batch after micro-batch."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.seen = []

    def training_step(self, model, inputs, *more):
        self.seen.append([tuple(row) for row in inputs["input_ids"].tolist()])
        return super().training_step(model, inputs, *more)


def rows(data):
    return [tuple(row["input_ids"].tolist()) for row in data]


def logged(made, name):
    return [entry[name] for entry in made.state.log_history if name in entry]


def assert_same(a, b):
    for (name, x), y in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        assert torch.equal(x, y), f"{name} differs by {(x - y).abs().max()}"


def causal(dropout=0.0):
    set_seed(0)
    more = {"max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2}
    return LlamaForCausalLM(LlamaConfig(**SMALL, **more, attention_dropout=dropout))


def sentences(n=46, seed=0, length=6):
    """Tokens to predict; of each sentence another number of them counts."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 40, (n, length), generator=generator)
    counted = torch.randint(1, length, (n, 1), generator=generator)
    labels = torch.where(torch.arange(length) <= counted, tokens, -100)
    return [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels, strict=True)]
