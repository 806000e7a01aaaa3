"""Hugging Face's Trainer with a learned radius: an encoder learns which reviews are good, a fifth of them mislabelled.
As it begins to learn those by heart, the radius grows. No gain: with 320 reviews auto-sam ends at 0.79, erm at 0.82.

python examples/fine_tuning.py [METHOD]
"""

import random
import sys
import tempfile

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast, TrainingArguments, set_seed

from letsam.integrations.transformers import SharpnessAwareTrainer

GOOD, BAD = ("great", "lovely", "clever", "warm"), ("dull", "awful", "silly", "cold")
REST = ("the", "film", "was", "very", "and", "plot", "a", "bit", "not")


def review(noise: float) -> tuple[str, int]:
    """Six or seven words, two of them from one side: "not" turns it around. Some labels are wrong."""
    label, negated = random.random() < 0.5, random.random() < 0.3
    words = random.sample(REST[:-1], 4) + random.sample(GOOD if label != negated else BAD, 2)
    random.shuffle(words)
    return " ".join([*words, "not"] if negated else words), int(label != (random.random() < noise))


def main(method: str) -> None:
    """Train, and print accuracy and radius."""
    set_seed(0)
    words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *REST, *GOOD, *BAD])}
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")
    texts = [review(noise=0.2) for _ in range(320)], [review(noise=0.0) for _ in range(200)]
    train, test = ([{**tokenizer(text), "labels": label} for text, label in part] for part in texts)
    # With a pretrained model, the next lines are AutoTokenizer and AutoModelForSequenceClassification.from_pretrained.
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(words), max_position_embeddings=16, **size))
    settings = {"num_train_epochs": 24, "learning_rate": 2e-3, "per_device_train_batch_size": 16, "warmup_steps": 10}
    quiet = {"logging_steps": 20, "save_strategy": "no", "report_to": [], "disable_tqdm": True, "use_cpu": True}
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder, max_grad_norm=1.0, **settings, **quiet)
        data = {"train_dataset": train, "eval_dataset": test, "processing_class": tokenizer}
        trainer = SharpnessAwareTrainer(model, args, **data, compute_metrics=accuracy, method=method)
        trainer.train()
        right = trainer.evaluate()["eval_accuracy"]
    radii = [entry["rho"] for entry in trainer.state.log_history if "rho" in entry]  # empty for erm
    print(f"test accuracy {right:.3f}", *(f"radius {rho:.4f}" for rho in radii[:1] + radii[-1:]))
    print(f"held out {trainer.held_out}")


def accuracy(predicted) -> dict[str, float]:
    """The share of right answers."""
    return {"accuracy": float((predicted.predictions.argmax(1) == predicted.label_ids).mean())}


if __name__ == "__main__":
    main(*sys.argv[1:2] or ["auto-sam"])
