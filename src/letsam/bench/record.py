"""The record of a benchmark: a JSON file that says what was timed, on what, and how."""

from __future__ import annotations

import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from ..experiments.record import environment, read_json, write_json
from ..experiments.records import BENCH, FORMAT
from .peers import PACKAGE
from .rows import KEYS, Row
from .settings import Settings

RATIOS = {
    True: "the median, over rounds in which everybody makes one step, of the ratio within the round",
    False: "of ms/step",
}
"""How rows are related, by whether they are paired."""
SHAPE = {
    "settings": dict,
    "environment": dict,
    "model": dict,
    "ratios": str,
    "rows": list,
    "notes": list,
    "command": str,
}


def new_record(
    settings: Settings, device: dict[str, Any], model: dict[str, int], rows: list[Row], notes: list[str], paired: bool
) -> dict[str, Any]:
    """Everything about a run."""
    return {
        "kind": BENCH,
        "format": FORMAT,
        "command": settings.command(),
        "environment": {**environment(), **device},
        "settings": settings.to_json(),
        "model": model,
        "ratios": RATIOS[paired],
        "notes": notes,
        "rows": rows,
    }


def describe_device(device: str) -> dict[str, Any]:
    """What the device is, and the switches of torch that decide how fast it is."""
    import torch

    cuda = device.startswith("cuda")
    try:
        package = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        package = None
    return {
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "threads": torch.get_num_threads(),
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        PACKAGE: package,
    }


def check_out(out: Path) -> None:
    """That a record and a chart can go there; what is not a record of ours is left alone."""
    if out.suffix != ".json":
        raise ValueError(f"--out {out}: give the name of a JSON file, such as bench.json")
    if out.exists():
        try:
            read_record(out)
        except ValueError:
            raise ValueError(f"{out} exists and is no record of letsam bench; choose another --out") from None
    elif chart_of(out).exists():
        raise ValueError(f"{chart_of(out)} exists, and no record beside it; choose another --out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        probe = tempfile.TemporaryFile(dir=out.parent)  # noqa: SIM115  # tells now, not after the last step
        probe.close()
    except OSError as error:
        raise ValueError(f"cannot write {out}: {error.strerror}; choose another --out") from None


def read_record(path: Path) -> dict[str, Any]:
    """A record that `letsam bench` wrote, or ValueError with one line."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    record = read_json(path)
    if not isinstance(record, dict) or (record.get("kind"), record.get("format")) != (BENCH, FORMAT):
        raise ValueError(f"{path} is no record of letsam bench in format {FORMAT}")
    whole = all(isinstance(record.get(key), kind) for key, kind in SHAPE.items())
    if not whole or not all(isinstance(row, dict) and set(row) == set(KEYS) for row in record["rows"]):
        raise ValueError(f"{path} is a damaged record of letsam bench; time it again")
    return record


def write_record(path: Path, record: dict[str, Any]) -> None:
    """The record, all or nothing."""
    write_json(path, record)


def chart_of(path: Path) -> Path:
    """Where the chart of a record lies."""
    return path.with_suffix(".png")


def title(record: dict[str, Any]) -> str:
    """What was timed, in a line."""
    settings, machine = record["settings"], record["environment"]
    number = record["model"]["parameters"]
    parameters = f"{number / 1e6:.3g} M" if number >= 1e6 else f"{number:,}"
    return (
        f"{settings['model']} ({parameters} parameters), batch {settings['batch']}, {settings['base']}, "
        f"{settings['dtype']}, {machine['device']}, torch {machine['torch']}"
    )
