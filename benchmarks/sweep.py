"""How a step's cost depends on the size of the model, on the number of its tensors, or on the batch: `letsam bench` at
some points, in one record.

    PYTHONPATH=src python benchmarks/sweep.py size --out results/bench       decoders, batch 8 × 128 tokens, AdamW
    PYTHONPATH=src python benchmarks/sweep.py tensors --out results/bench    an MLP of 4 M parameters, cut ever finer
    PYTHONPATH=src python benchmarks/sweep.py batch --out results/bench      ResNet-18 for 32×32 images

Needs a CUDA device. The record, sweep-size.json and so on, is written after every point: run again, an interrupted
sweep goes on where it stopped. --tiny times two tiny points on the CPU, to see that it runs.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from letsam.bench.display import Lines
from letsam.bench.measure import run
from letsam.bench.record import describe_device
from letsam.bench.settings import Settings
from letsam.experiments.record import environment, finite, read_json, write_json

KIND = "letsam sweep"
FORMAT = 1
METHODS = ("erm", "sam", "auto-sam:every=10", "lets-sam")
Record = dict[str, Any]


def point(tiny: bool, **settings: Any) -> Settings:
    """Settings that all points share; the steps are a multiple of ten, since every tenth of auto-sam costs more."""
    if tiny:
        return Settings(methods=METHODS, modes=("eager",), steps=2, warmup=1, device="cpu", **settings)
    return Settings(**{"methods": METHODS, "modes": ("eager", "captured"), "steps": 20, "warmup": 5} | settings)


def size(tiny: bool) -> list[Settings]:
    """Decoders of 1 M to 350 M parameters; a small vocabulary, so that the blocks make the size."""
    full = ((128, 4, 4), (192, 6, 6), (320, 8, 5), (512, 10, 8), (768, 14, 12), (1024, 28, 16))
    shapes = ((8, 1, 2), (16, 1, 2)) if tiny else full
    words, length, batch = (32, 8, 2) if tiny else (2048, 128, 8)
    names = [
        f"decoder-125m:width={width},depth={depth},heads={heads},vocabulary={words},context={length}"
        for width, depth, heads in shapes
    ]
    return [point(tiny, model=name, batch=batch) for name in names]


def tensors(tiny: bool) -> list[Settings]:
    """4 M parameters in 20 to 2,000 tensors; in float32, where autocast adds no launches of its own."""
    full = ((10, 664), (50, 288), (250, 128), (1000, 64))
    shapes = ((2, 8), (4, 4)) if tiny else full
    few = {} if tiny else {"steps": 10, "warmup": 3}  # thousands of launches take their time
    names = [f"mlp-2000:layers={layers},width={width}" for layers, width in shapes]
    return [point(tiny, model=name, batch=2 if tiny else 512, dtype="float32", **few) for name in names]


def batch(tiny: bool) -> list[Settings]:
    """From batches that leave the GPU idle to batches that fill it."""
    if tiny:
        return [point(tiny, model="resnet18:width=4", batch=n) for n in (2, 4)]
    steps = {1024: 10, 2048: 10}
    return [point(tiny, model="resnet18", batch=n, steps=steps.get(n, 20)) for n in (32, 128, 512, 1024, 2048)]


SWEEPS: dict[str, tuple[Callable[[bool], list[Settings]], str, Callable[[Record], int]]] = {
    "size": (size, "parameters", lambda record: record["model"]["parameters"]),
    "tensors": (tensors, "tensors", lambda record: record["model"]["tensors"]),
    "batch": (batch, "batch", lambda record: record["settings"]["batch"]),
}
"""The points of a sweep, the name of what is varied, and its value in a record."""


def new_sweep(name: str, tiny: bool) -> Record:
    """A record without points."""
    command = f"python benchmarks/sweep.py {name} --out results/bench" + (" --tiny" if tiny else "")
    axis = SWEEPS[name][1]
    return {"kind": KIND, "format": FORMAT, "sweep": name, "tiny": tiny, "axis": axis, "command": command, "points": []}


def begun(path: Path, name: str, tiny: bool, device: str) -> Record:
    """The record to go on with; ValueError if what is there is another one."""
    fresh = new_sweep(name, tiny)
    if not path.exists():
        return fresh
    found = read_json(path)
    if not isinstance(found, dict) or {**found, "points": []} != fresh:
        raise ValueError(f"{path} is no record of this sweep; choose another --out")
    here = machine(device)
    for done in found["points"]:
        there = {key: done["record"]["environment"].get(key) for key in here}
        if there != here:
            raise ValueError(f"{path} was begun on {there}, and this is {here}; choose another --out")
    return found


def machine(device: str) -> Record:
    """What has to be the same at all points of a sweep."""
    here = {**environment(), **describe_device(device)}
    return {key: here[key] for key in ("device", "torch", "letsam")}


def sweep(name: str, path: Path, tiny: bool, seconds: float, console: Console) -> Record:
    """Time the points that are missing, as long as there is time to begin one."""
    points, axis, value = SWEEPS[name]
    started = time.monotonic()
    todo = [settings.resolved() for settings in points(tiny)]
    record = begun(path, name, tiny, str(todo[0].device))
    for number, settings in enumerate(todo, start=1):
        if finite(settings.to_json()) in [done["record"]["settings"] for done in record["points"]]:
            continue
        if time.monotonic() - started > seconds:
            console.print(f"{seconds:g} s are over before point {number} of {len(todo)}: run it again to go on")
            break
        found = run(settings, Lines(console))
        record["points"].append({axis: value(found), "record": found})
        write_json(path, record)
        console.print(f"point {number} of {len(todo)}, {axis} {value(found)}: {path}", soft_wrap=True)
    return record


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", choices=SWEEPS)
    parser.add_argument("--out", type=Path, required=True, help="folder of the record")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no point after that long")
    parser.add_argument("--tiny", action="store_true", help="two tiny points on the CPU, to see that it runs")
    return parser.parse_args()


def main() -> int:
    """Run a sweep; returns the exit code."""
    args = parse()
    try:
        if not args.tiny and not torch.cuda.is_available():
            raise ValueError("there is no CUDA device here; --tiny runs on the CPU")
        args.out.mkdir(parents=True, exist_ok=True)
        path = args.out / f"sweep-{args.sweep}.json"
        sweep(args.sweep, path, args.tiny, args.seconds, Console(stderr=True, highlight=False))
    except (ValueError, OSError) as error:
        print(f"sweep: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sweep: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
