"""What a sharpness-aware step costs in Hugging Face's Trainer, beside a step of the plain one, in the same run.

    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/trainer_step.py --out results/bench/trainer-cpu.json
    PYTHONPATH=src python benchmarks/trainer_step.py --size base --bf16 --out results/bench/trainer.json

A DeBERTa with random weights classifies random tokens. A step is all that Trainer does between on_step_begin and
on_step_end: passes, clipping, the base's step, the radius. Every round trains each contender in turn, and a ratio is
taken within a round; the table has the medians of the rounds. On a CPU the seconds are those that it worked for this
process (use one thread: OMP_NUM_THREADS=1), since others may use the machine too.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import (
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from letsam.bench.record import describe_device
from letsam.experiments.record import environment, write_json
from letsam.integrations.transformers import SharpnessAwareTrainer

SIZES = {  # width, layers, heads, tokens a sample, samples a batch
    "tiny": (16, 1, 2, 8, 2),
    "small": (256, 4, 4, 64, 16),
    "base": (768, 12, 12, 128, 32),
}
CONTENDERS: dict[str, dict[str, Any]] = {
    "plain Trainer": {},
    "sam": {"method": "sam"},
    "auto-sam": {"method": "auto-sam"},
}
Record = dict[str, Any]


class Clock(TrainerCallback):
    """The seconds of every step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start."""
        self._began = now()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop."""
        self.seconds.append(now() - self._began)


def now() -> float:
    """On a GPU the time when it has done what was asked of it; on a CPU the seconds that it spent on this process."""
    if not torch.cuda.is_available():
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def seconds_of(contender: str, args: argparse.Namespace, folder: str) -> float:
    """Mean seconds of a step of a new trainer, after the first ones."""
    width, layers, heads, length, batch = SIZES[args.size]
    steps = args.warmup + args.steps
    torch.manual_seed(0)
    shape = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    words = {"vocab_size": 1000, "intermediate_size": 4 * width, "max_position_embeddings": length}
    config = DebertaV2Config(**shape, **words, relative_attention=True, pos_att_type=["p2c", "c2p"])
    tokens = torch.randint(0, 1000, (2 * steps * batch * args.accumulation, length))
    data = [{"input_ids": row, "labels": row[0] % 2} for row in tokens]
    settings = TrainingArguments(
        folder,
        max_steps=steps,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=args.accumulation,
        bf16=args.bf16,
        logging_steps=10 * steps,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    clock, own = Clock(), CONTENDERS[contender]
    kind = SharpnessAwareTrainer if own else Trainer
    model = DebertaV2ForSequenceClassification(config)
    kind(model, settings, train_dataset=data, callbacks=[clock], **own).train()
    return statistics.mean(clock.seconds[args.warmup :])


def measure(args: argparse.Namespace) -> Record:
    """All rounds, as a record."""
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, args.rounds + 1):
            rounds.append({name: seconds_of(name, args, folder) for name in CONTENDERS})
            print(f"round {number} of {args.rounds}", file=sys.stderr)
    plain = next(iter(CONTENDERS))
    rows = [
        {
            "name": name,
            "ms": 1000 * statistics.median(r[name] for r in rounds),
            "relative": statistics.median(r[name] / r[plain] for r in rounds),
            "relative_range": [f(r[name] / r[plain] for r in rounds) for f in (min, max)],
        }
        for name in CONTENDERS
    ]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    settings = {key: value for key, value in vars(args).items() if key != "out"}
    here = environment() | describe_device(device) | {"threads": torch.get_num_threads()}
    return {"kind": "letsam trainer step", "settings": settings, "environment": here, "rows": rows}


def main(arguments: list[str] | None = None) -> Record:
    """Measure, print a table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--steps", type=int, default=20, help="a multiple of ten, since every tenth may cost more")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(arguments)
    record = measure(args)
    for row in record["rows"]:
        low, high = row["relative_range"]
        print(f"{row['name']:<20}{row['ms']:9.2f} ms{row['relative']:8.2f} × ({low:.2f} to {high:.2f})")
    if args.out:
        write_json(args.out, record)
    return record


if __name__ == "__main__":
    main()
