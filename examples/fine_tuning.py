"""Hugging Face's Trainer with a learned radius: a small encoder learns which reviews are good. No downloads.

python examples/fine_tuning.py [METHOD]
"""

import random
import sys
import tempfile

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast, TrainingArguments

from letsam.integrations.transformers import SharpnessAwareTrainer

GOOD, BAD = ("great", "lovely", "clever", "warm"), ("dull", "awful", "silly", "cold")
REST = ("the", "film", "was", "very", "and", "plot", "a", "bit", "not")


def review(rng: random.Random) -> tuple[str, int]:
    """Seven words, two of them from one side: "not" turns it around."""
    label, negated = rng.random() < 0.5, rng.random() < 0.3
    words = rng.sample(REST[:-1], 4) + rng.sample(GOOD if label != negated else BAD, 2)
    rng.shuffle(words)
    return " ".join([*words, "not"] if negated else words), int(label)


def main(method: str) -> None:
    """Train, and print accuracy and radius."""
    words = ["[PAD]", "[UNK]", *REST, *GOOD, *BAD]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")
    rng = random.Random(0)
    train, test = (
        [{**tokenizer(text), "labels": y} for text, y in (review(rng) for _ in range(n))] for n in (640, 200)
    )

    # With a pretrained model, the next lines are AutoTokenizer and AutoModelForSequenceClassification.from_pretrained.
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(words), max_position_embeddings=16, **size))
    settings = {"num_train_epochs": 6, "learning_rate": 2e-3, "per_device_train_batch_size": 32, "warmup_steps": 10}
    quiet = {"logging_steps": 20, "save_strategy": "no", "report_to": [], "disable_tqdm": True, "use_cpu": True}
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder, max_grad_norm=1.0, **settings, **quiet)
        data = {"train_dataset": train, "eval_dataset": test, "processing_class": tokenizer}
        trainer = SharpnessAwareTrainer(model, args, **data, compute_metrics=accuracy, method=method)
        trainer.train()
        right = trainer.evaluate()["eval_accuracy"]
    print(f"test accuracy {right:.3f}  radius {trainer.sharpness_aware.last.radius:.4f}  held out {trainer.held_out}")


def accuracy(predicted) -> dict[str, float]:
    """The share of right answers."""
    return {"accuracy": float((predicted.predictions.argmax(1) == predicted.label_ids).mean())}


if __name__ == "__main__":
    main(*sys.argv[1:2] or ["auto-sam"])
