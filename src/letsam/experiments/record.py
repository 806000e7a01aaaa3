"""JSON files of a run, and the environment."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from ..files import write

Row = dict[str, Any]


def write_json(path: Path, data: Any) -> None:
    """Readable, valid JSON: a number that is not finite becomes null."""
    write(path, json.dumps(finite(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The content of a JSON file, or ValueError with one line."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({type(error).__name__})") from None


def finite(data: Any) -> Any:
    """The same data with None for every number that JSON cannot hold."""
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def environment(device: str | None = None) -> dict[str, Any]:
    """Versions and hardware; nothing that names the user, the machine or a folder.

    Of a run, whose device is given, the threads too: on a CPU they decide in which order numbers are added.
    """
    import torch

    packages = ("letsam", "torch", "numpy")
    return {
        "python": platform.python_version(),
        **{package: _version(package) for package in packages},
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": _memory(),
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "revision": _revision(),
        **({} if device is None else {"device": device_name(device), "threads": torch.get_num_threads()}),
    }


def device_name(device: str) -> str:
    """The name of the GPU, or cpu."""
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory() -> float | None:
    if sys.platform == "win32":
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _revision() -> str | None:
    """The git revision of this package, if it is tracked in a checkout; '+' marks local changes."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # a virtual environment inside a checkout is not it
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", "..") else "")
    except (OSError, subprocess.SubprocessError):
        return None
