"""The page: question, answer, table, curves, and how it was made."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from ..experiments.config import SETS, Config
from ..experiments.record import finite, read_json
from ..experiments.summary import Records, percent, radius
from ..files import write
from .curves import colors, plots

NAMES = {
    "digits": "handwritten digits",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
}
LABELS = {
    "methods": "Methods",
    "seeds": "Seeds",
    "data": "Images",
    "model": "Network",
    "images": "Training images",
    "epochs": "Epochs",
    "noise": "Label noise",
    "base": "Base optimizer",
    "batch_size": "Batch size",
    "lr": "Learning rate (cosine to 0)",
    "weight_decay": "Weight decay",
    "python": "Python",
    "letsam": "letsam",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "system": "System",
    "processor": "Processor",
    "cores": "Cores",
    "memory_gib": "Memory, GiB",
    "torch_cpu_capability": "Vector instructions",
    "revision": "Git revision",
}


def write_report(folder: Path, config: Config, result: dict[str, Any], records: Records) -> None:
    """Write report.html into a run folder."""
    environment = read_json(folder / "environment.json")
    write(folder / "report.html", render(folder.resolve().name, config, environment, result, records))


def render(name: str, config: Config, environment: dict[str, Any], result: dict[str, Any], records: Records) -> str:
    """The whole page as HTML."""
    from plotly.offline import get_plotlyjs

    curves = finite(plots(config, records))
    figures = "".join(
        f"<figure><figcaption><b>{escape(plot['title'])}</b><span>{escape(plot['caption'])}</span></figcaption>"
        f'<div class="plot" id="{plot["id"]}" role="img" aria-label="{escape(plot["title"])} by epoch"></div></figure>'
        for plot in curves
    )
    noise = f"with {100 * config.noise:g} % wrong labels" if config.noise else "with clean labels"
    parts = {
        "title": escape(f"{name} · letsam"),
        "name": escape(name),
        "question": f"Which method generalizes best on {NAMES[config.data]} {noise}?",
        "answer": escape(result["verdict"]),
        "facts": _facts(config),
        "table": _table(config, result),
        "chips": _chips(config),
        "figures": figures,
        "command": escape(command(config)),
        "config": _definitions(config.to_json(), skip=("format",)),
        "environment": _definitions(environment),
        "data": json.dumps(curves, allow_nan=False).replace("<", "\\u003c"),
        "plotly": get_plotlyjs(),
        "style": _asset("page.css"),
        "script": _asset("page.js"),
    }
    # One pass, so that braces inside a value (a run may be called {{data}}) stay what they are.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def command(config: Config) -> str:
    """The command line that makes the same numbers."""
    seeds = [len(config.seeds)] if config.seeds == tuple(range(len(config.seeds))) else config.seeds
    settings = {key: value for key, value in asdict(config).items() if key not in ("methods", "seeds")}
    words = ["letsam", "compare", "--methods", *config.methods, "--seeds", *map(str, seeds)]
    given = [(f"--{key.replace('_', '-')}", str(value)) for key, value in settings.items() if value is not None]
    return shlex.join(words + [word for option in given for word in option])


def _facts(config: Config) -> str:
    base = {"sgd": "SGD with momentum", "adamw": "AdamW"}[config.base]
    runs = len(config.methods) * len(config.seeds)
    facts = [
        (f"{runs}", f"runs: {len(config.methods)} methods × {len(config.seeds)} seeds"),
        (f"{config.epochs}", f"epochs, batches of {config.batch_size}"),
        (f"{100 * config.noise:g} %", f"of the {config.images or SETS[config.data]:,} training labels drawn anew"),
        (base, f"learning rate {config.lr:g}, weight decay {config.weight_decay:g}"),
    ]
    return "".join(f"<li><b>{escape(big)}</b><span>{escape(small)}</span></li>" for big, small in facts)


def _table(config: Config, result: dict[str, Any]) -> str:
    styles, behind = colors(config.methods), {c["method"]: c for c in result["contests"]}
    everything = [value for method in result["methods"] for value in method["test_accuracy"]["values"]]
    span = min(everything), max(everything)
    rows = []
    for method in sorted(result["methods"], key=lambda m: -m["test_accuracy"]["mean"]):
        name, accuracy = method["method"], method["test_accuracy"]
        cells = [
            f'<th scope="row">{_dot(styles[name][0])}{escape(name)}</th>',
            f'<td class="score">{percent(accuracy["mean"], accuracy["std"])}</td>',
            f'<td class="strip">{_strip(accuracy, span, styles[name][0])}</td>',
            f"<td>{_behind(behind.get(name))}</td>",
            f"<td>{radius(method)}</td>",
            f"<td>{method['passes_per_step']:.2f}</td>",
            f"<td>{method['seconds']:.1f}</td>",
        ]
        first = ' class="first"' if name == result["first"] else ""
        rows.append(f"<tr{first}>{''.join(cells)}</tr>")
    return "".join(rows)


def _behind(contest: dict[str, Any] | None) -> str:
    if contest is None:
        return "first"
    width = "" if contest["half_width"] is None else f" ± {100 * contest['half_width']:.1f}"
    note = "" if contest["clear"] else '<small title="the 95 % interval holds 0">within noise</small>'
    points = f"{100 * contest['difference']:.1f}"
    return f"{'' if points == '0.0' else '−'}{points}{width}{note}"


def _strip(accuracy: dict[str, Any], span: tuple[float, float], color: str) -> str:
    """A dot a seed on the accuracy axis that all rows share, a tick at the mean."""
    low, high = span
    place = [8 + 144 * ((value - low) / (high - low) if high > low else 0.5) for value in accuracy["values"]]
    mean = sum(place) / len(place)
    dots = "".join(f'<circle cx="{x:.1f}" cy="12" r="4.5" fill="{color}" fill-opacity=".6"/>' for x in place)
    tick = f'<line x1="{mean:.1f}" x2="{mean:.1f}" y1="3" y2="21" stroke="{color}" stroke-width="2"/>'
    label = ", ".join(f"{100 * value:.1f} %" for value in accuracy["values"])
    return f'<svg viewBox="0 0 160 24" role="img" aria-label="{label}"><title>{label}</title>{dots}{tick}</svg>'


def _chips(config: Config) -> str:
    return "".join(
        f'<button type="button" aria-pressed="true" data-method="{escape(method)}">'
        f"{_dot(colors(config.methods)[method][0])}{escape(method)}</button>"
        for method in config.methods
    )


def _dot(color: str) -> str:
    return f'<i class="dot" style="background:{color}"></i>'


def _definitions(values: dict[str, Any], skip: tuple[str, ...] = ()) -> str:
    def text(value: Any) -> str:
        if isinstance(value, list | tuple):
            return ", ".join(map(str, value))
        return "–" if value is None else str(value)

    shown = {key: value for key, value in values.items() if key not in skip}
    return "".join(f"<dt>{escape(LABELS.get(k, k))}</dt><dd>{escape(text(v))}</dd>" for k, v in shown.items())


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
